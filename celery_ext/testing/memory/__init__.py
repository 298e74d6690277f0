"""A broker in memory that holds delayed messages, for tests without Redis."""
