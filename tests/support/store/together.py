"""Several stores that work on the same messages at once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import redis

from kombu_delayq.store import DelayStore
from tests.support.store.tuned import tuned


@contextmanager
def own_store(store: DelayStore) -> Iterator[DelayStore]:
    """A store of the same form with a connection of its own, as another process would have."""
    port = store.client.connection_pool.connection_kwargs["port"]
    own = DelayStore(redis.Redis(port=port), store.keys, options=tuned(layout=store.layout, transfer_batch=3))
    yield own
    own.close()


def together(store: DelayStore, *acts: Callable[[DelayStore], Any]) -> list[Any]:
    """Runs all acts at once, each with a store of its own. Returns their results."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[DelayStore], Any]) -> Any:
        with own_store(store) as own:
            own.client.ping()
            barrier.wait()
            return act(own)

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))
