"""What an operation asks of Redis does not depend on how many messages of a queue wait, or are ready."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer, PageId
from tests.support.store.keyspace import FUTURE_MS, PAST_MS
from tests.support.store.layouts import hash_only

#: How many messages wait in each queue. The first one brings the scripts to Redis.
QUEUES = {"first": 1_000, "few": 1_000, "many": 10_000}

OPERATIONS: dict[str, Callable[[DelayStore, str], object]] = {
    "offer": lambda store, queue: store.delivery.offer(queue, Offer("new", repr(FUTURE_MS + 0.5), 0, "body")),
    "put": lambda store, queue: store.delivery.put(
        queue, PageId(f"sender of {queue}", 0), [Offer("new", repr(FUTURE_MS), 0, "body")]
    ),
    "heads": lambda store, queue: store.delivery.heads([queue]),
    "transfer": lambda store, queue: store.delivery.transfer(queue),
    "get": lambda store, queue: store.lookup.get([queue], ["500"]),
    "cancel": lambda store, queue: store.lookup.cancel([queue], ["500"]),
    "count": lambda store, queue: store.scan.count(queue, FUTURE_MS, inf),
    "first page": lambda store, queue: store.scan.browse(queue, None, -inf, inf, 20),
    "page of later ones": lambda store, queue: store.scan.browse(queue, None, FUTURE_MS + 500, inf, 20),
    "parts": lambda store, queue: store.scan.split(queue, [250, 500, 750]),
    "overview": lambda store, queue: store.figures.overview([queue]),
    "counts": lambda store, queue: store.figures.counts([queue]),
    "due counts": lambda store, queue: store.figures.due_counts(
        [queue], [-inf, FUTURE_MS + 100, FUTURE_MS + 200, FUTURE_MS + 900, inf]
    ),
    "size": lambda store, queue: store.fetching.size(queue),
    "purge": lambda store, queue: store.queues.purge(queue, with_ready=True),
    "delete": lambda store, queue: store.queues.delete(queue),
}


@hash_only
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_asks_as_much_of_a_long_queue(store: DelayStore, name: str) -> None:
    """Redis runs as many commands, those of scripts among them, and sends as many bytes, give or take a number."""
    for queue, count in QUEUES.items():
        offers = [Offer(str(number), repr(FUTURE_MS + number), 0, "body") for number in range(count)]
        for start in range(0, count, 500):
            store.delivery.offer(queue, *offers[start : start + 500])
            store.client.lpush(queue, *["body"] * 500)
        store.delivery.offer(queue, Offer("due", repr(PAST_MS), 0, "body"))
    _, (few, few_bytes), (many, many_bytes) = (_asked(store, partial(OPERATIONS[name], store, each)) for each in QUEUES)
    assert many == few
    assert abs(many_bytes - few_bytes) < 200


def _asked(store: DelayStore, run: Callable[[], object]) -> tuple[Counter[str], int]:
    """Returns how often Redis runs each command meanwhile, and how many bytes it sends."""
    client: Any = store.client
    client.config_resetstat()
    run()
    sent = client.info("stats")["total_net_output_bytes"]
    return Counter({name: each["calls"] for name, each in client.info("commandstats").items()}), sent
