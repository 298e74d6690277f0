"""What ``delayq demo`` runs."""
