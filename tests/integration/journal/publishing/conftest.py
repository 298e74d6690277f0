"""Stores with a journal, and promoters."""

from tests.support.journal.stores import journaled_store, make_journaled

__all__ = ["journaled_store", "make_journaled"]
