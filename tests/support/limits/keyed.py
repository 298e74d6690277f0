"""A queue whose messages have keys of limits, some in the hands of a consumer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Celery

from celery_ext import install
from celery_ext.connection import open_store
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import Limit, LimitStore
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Fetched
from tests.support.store.consuming import fetch, lives
from tests.support.workers.harness import TRANSPORT

QUEUE = "orders"
LIMITS = {"account": {"running": 1}, "stripe": {"running": 10, "rate": [50, 100]}}


class Keyed:
    """An app whose workers have declared limits for the queue ``orders``, and have ended.

    Args:
        app: The app.
        store: A store of its broker.
    """

    def __init__(self, app: Celery, store: DelayStore) -> None:
        self.app = app
        self.store = store
        self.limits = store.part(LimitStore)
        self._fetched = 0

    def declare(self, limits: Mapping[str, Any] = LIMITS, *queues: str) -> None:
        """Declares limits as a worker that starts."""
        self.limits.declare({name: Limit.of(given) for name, given in limits.items()}, queues or (QUEUE,))

    def send(self, *keys: str, queue: str = QUEUE, **options: Any) -> list[str]:
        """Sends a task for each key. Returns their ids."""
        return [
            self.app.send_task("shop.export", (number,), queue=queue, limit=key, **options).id
            for number, key in enumerate(keys)
        ]

    def fetch(self, most: int = 1, queue: str = QUEUE, **how: Any) -> list[Fetched]:
        """Lets a consumer that lives take messages. The others with keys wait in sub-queues then."""
        lives(self.store, queues=(queue,))
        found = fetch(self.store, most, queue, first=self._fetched + 1, **how)
        self._fetched += most
        return found

    def sort(self, queue: str = QUEUE) -> list[Fetched]:
        """Lets the consumer take messages, one at a time, until all others wait in sub-queues. Returns those taken."""
        found = self.fetch(1, queue)
        while self.store.client.llen(queue):
            found += self.fetch(1, queue)
        return found

    def keys(self, queue: str = QUEUE) -> dict[str, tuple[int, int]]:
        """Returns how many messages of each key wait, and how many are in hand."""
        return {state.key: (state.waiting, state.running) for state in self.limits.keys(queue)}


@contextmanager
def keyed(server: PrivateRedis, **conf: Any) -> Iterator[Keyed]:
    """Yields an app that has declared nothing yet."""
    app = Celery("shop", broker=server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_default_queue=QUEUE, **conf)
    install(app)

    @app.task(name="shop.export", shared=False)
    def export(*args: Any) -> None: ...

    try:
        with app.connection_for_write() as connection:
            yield Keyed(app, open_store(connection))
    finally:
        app.close()
