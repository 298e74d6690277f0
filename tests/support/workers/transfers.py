"""Transfer workers in threads of the test, messages for them, and the messages that they delivered."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import DEADLINE_S, until
from tests.support.servers.proxies import Proxy
from tests.support.store.tuned import tuned
from tests.support.workers.held import KEYS

QUEUE = "celery"

#: Starts a number of transfer workers; keywords are options, and ``server=``.
Transfer = Callable[..., Sequence[TransferWorker]]


@pytest.fixture
def transfer(redis_server: PrivateRedis, layout: str) -> Iterator[Transfer]:
    workers: list[TransferWorker] = []

    def start(count: int = 1, server: PrivateRedis | Proxy = redis_server, **options: Any) -> Sequence[TransferWorker]:
        def connect() -> DelayStore:
            options_of = tuned(**{"layout": layout, **options})
            return DelayStore(redis.Redis(port=server.port), options=options_of)

        new = [TransferWorker(connect) for _ in range(count)]
        workers.extend(new)
        for worker in new:  # those that run would get a second thread, which nobody joins
            worker.start()
        until(lambda: any(worker.leading for worker in workers))
        return workers

    yield start
    for worker in workers:
        worker.stop(DEADLINE_S)  # else it may work, and log, in the next test


def offer(store: DelayStore, value: str, delay_s: float, queue: str = QUEUE) -> None:
    """Stores a message that contains only a value, which is also its id."""
    store.delivery.offer(queue, Offer(value, f"+{delay_s * 1000}", 0, json.dumps(value)))


def arrived(client: redis.Redis, queue: str = QUEUE) -> Counter[str]:
    """Counts the delivered values."""
    return Counter(json.loads(body) for body in client.lrange(queue, 0, -1))


def listeners(client: redis.Redis, layout: str, queue: str = QUEUE) -> int:
    """Counts the subscribers to the queue's new heads in this layout."""
    channel = RedissonKeys(KEYS).channel(queue) if layout == "redisson" else KEYS.wake
    return int(client.pubsub_numsub(channel)[0][1])


def commands_of_look(heads: int) -> int:
    """Returns how many commands a standby sends to read heads: one a queue, and five of all, before and after."""
    return heads + 10
