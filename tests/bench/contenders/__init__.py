"""The programs of those who are compared: producers, workers, and many idle consumers."""
