"""A store in each layout."""

from tests.support.servers.acl import users
from tests.support.store.fixtures import layout, make_store, plain_server, server, store

__all__ = ["layout", "make_store", "plain_server", "server", "store", "users"]
