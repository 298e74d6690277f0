"""What is written down during a run, and what is read from it."""
