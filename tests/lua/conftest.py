"""A store in each layout, for each script."""

from tests.support.store.fixtures import (
    client,
    ear,
    layout,
    make_store,
    own_server,
    plain_server,
    redis_server,
    server,
    store,
)

__all__ = ["client", "ear", "layout", "make_store", "own_server", "plain_server", "redis_server", "server", "store"]
