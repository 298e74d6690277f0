"""A record batch becomes messages, a column at a time. Knows neither Spark nor Redis."""
