"""A store in each form of backup, as the tests of the scripts have it."""

from tests.support.store.fixtures import backup, ear, make_store, own_server, store

__all__ = ["backup", "ear", "make_store", "own_server", "store"]
