"""Stores with a journal, promoters of it, and messages for them."""
