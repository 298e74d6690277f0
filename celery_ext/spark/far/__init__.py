"""The far tier: Parquet files with the messages that are due later than Redis should hold them."""
