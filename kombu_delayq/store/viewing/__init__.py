"""The store's operations for those who look on: queues are counted and read, and what was done to them is noted."""
