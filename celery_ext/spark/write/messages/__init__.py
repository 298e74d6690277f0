"""A record batch becomes messages, a column at a time. Runs no Spark and asks no Redis."""
