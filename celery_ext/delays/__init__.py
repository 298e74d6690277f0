"""How long tasks wait: durations, delay levels, delay chains, and the task class that follows a chain."""
