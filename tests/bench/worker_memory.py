"""By how much a worker grows while tasks wait for their eta."""

from collections.abc import Iterator
from time import sleep

from celery_ext.private_redis import PrivateRedis
from tests.bench.app import OURS, make_app
from tests.bench.report import Figure
from tests.bench.worker import resident_bytes, running
from tests.waiting import until

WAITING = 100_000
COUNTDOWN_S = 3600
#: After the last publish, so that a worker that takes messages has taken them, in s.
SETTLE_S = 5


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes to a running worker and looks at its process tree."""
    if not resident_bytes(1):
        return
    count = 5000 if quick else WAITING
    note = "resident memory of the worker and its children, by /proc"
    value = _growth_mb(server, OURS, count)
    yield Figure(f"worker's growth, {count:,} waiting", value, "MB", 5, note=note)
    few = count // 5
    value = _growth_mb(server, "", few) * WAITING / few
    yield Figure(f"the same on stock, scaled from {few:,} to {WAITING:,}", value, "MB")


def _growth_mb(server: PrivateRedis, transport: str, count: int) -> float:
    client = server.client()
    client.flushall()
    app = make_app(server.url, transport)
    task = app.tasks["bench.arrive"]
    with running(server.url, transport=transport) as pid:
        for _ in range(200):  # what a worker allocates once, at its first tasks, is not growth
            task.delay(0.0)
        until(lambda: not client.exists("celery", "unacked"), 60, "the worker is warm")
        before = resident_bytes(pid)
        for _ in range(count):
            task.apply_async((0.0,), countdown=COUNTDOWN_S)
        until(lambda: not client.exists("celery"), 600, "the worker has taken what it takes")
        sleep(SETTLE_S)
        growth = resident_bytes(pid) - before
    app.close()
    return growth / 1e6
