"""Limits by key in the store: what a fetch gets, and what it does not."""
