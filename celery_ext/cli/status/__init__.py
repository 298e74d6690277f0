"""What ``delayq status`` reports, how it prints that, again and again with ``--watch``, and checks it for a monitor."""
