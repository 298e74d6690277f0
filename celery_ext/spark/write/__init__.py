"""A DataFrame or a stream becomes tasks."""
