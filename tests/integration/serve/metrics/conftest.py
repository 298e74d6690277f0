"""A store in each form of backup."""

from tests.support.servers.acl import users
from tests.support.store.fixtures import backup, make_store, store

__all__ = ["backup", "make_store", "store", "users"]
