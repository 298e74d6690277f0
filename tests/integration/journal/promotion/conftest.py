"""Stores with a journal, and promoters."""

from tests.support.journal.processes import hold
from tests.support.journal.stores import journaled_store, make_journaled

__all__ = ["hold", "journaled_store", "make_journaled"]
