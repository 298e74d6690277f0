"""A store in each form of backup, for each script."""

from tests.support.store.fixtures import backup, client, ear, make_store, store

__all__ = ["backup", "client", "ear", "make_store", "store"]
