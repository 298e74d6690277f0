"""What kombu-delayq's scripts cost Redis, for messages of 1,000 bytes of any origin, beside the bare command."""

from contextlib import closing
from time import monotonic
from typing import Any

import redis

from tests.bench.contender import Failed
from tests.bench.jobs import Found, push
from tests.bench.results import Sample
from tests.bench.servers import RedisServer
from tests.bench.targets.load import QUEUE, fill, make_store, message, within_the_last_hour

#: Messages between two looks at the clock.
PART = 10_000


def scripts(name: str, form: str, size: int, deadline: float) -> Found:
    """Offers and transfers a backlog that is all due, at random times within an hour.

    Args:
        name: Name of the contender.
        form: Form of backup.
        size: Number of messages.
        deadline: Time at which it fails, by the monotonic clock.
    """
    with closing(RedisServer()) as server:
        server.start()
        client: Any = redis.Redis.from_url(server.url)
        store = make_store(client, form)
        before_s = server.cpu_s()
        for start in range(0, size, PART):
            fill(store, min(PART, size - start), within_the_last_hour())
            _check(deadline)
        after_s = server.cpu_s()
        yield Sample("script_offer", name, size, (after_s - before_s) / size * 1e6)
        calls_s = []
        while store.delivery.transfer(QUEUE).moved:
            before_s, after_s = after_s, server.cpu_s()
            calls_s.append(after_s - before_s)
            _check(deadline)
        if client.llen(QUEUE) != size:
            raise Failed(f"{client.llen(QUEUE):,} of {size:,} messages were moved")
        yield Sample("script_transfer", name, size, sum(calls_s) / size * 1e6)
        yield Sample("script_longest", name, size, max(calls_s) * 1e3)


def script_limit(count: int, deadline: float) -> Found:
    """Pushes messages of the same size with the bare command."""
    with closing(RedisServer()) as server:
        server.start()
        yield Sample("script_limit", "LPUSH", 0, push(server, message("0" * 36).encode(), count))
        _check(deadline)


def _check(deadline: float) -> None:
    if monotonic() > deadline:
        raise Failed("it did not come to an end in time")
