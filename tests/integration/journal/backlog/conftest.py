"""Stores with a journal."""

from tests.support.journal.stores import journaled_store, make_journaled

__all__ = ["journaled_store", "make_journaled"]
