"""How late a task begins: from its eta to the first line of the task, in a real worker."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from time import sleep, time

from celery_ext.private_redis import PrivateRedis
from tests.bench.app import OURS, journal_of, make_app
from tests.bench.report import Figure
from tests.bench.worker import running
from tests.waiting import until

PER_S = 100


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes all messages ahead of time, then only waits."""
    seconds = 10 if quick else 60
    count = PER_S * seconds
    journal = journal_of(server.url)
    with running(server.url):
        _publish(server.url, count, lead_s=3 + count / 500)
        sleep(seconds)
        until(lambda: journal.llen("late_s") >= count, 60, "all tasks have run")
    late_ms = sorted(float(late_s) * 1000 for late_s in journal.lrange("late_s", 0, -1))
    if len(late_ms) != count:
        raise RuntimeError(f"{len(late_ms)} runs of {count} tasks")
    name = f"lateness, {PER_S} msg/s for {seconds} s,"
    note = "Poisson arrivals, task messages of about 1,000 bytes, prefork worker with default settings"
    yield Figure(f"{name} min", late_ms[0], "ms", 0, at_least=True, note=note)
    yield Figure(f"{name} p50", late_ms[count // 2], "ms", 5)
    yield Figure(f"{name} p99", late_ms[count * 99 // 100], "ms", 25)
    yield Figure(f"{name} max", late_ms[-1], "ms")


def _publish(broker_url: str, count: int, lead_s: float) -> None:
    app = make_app(broker_url, OURS)
    due = time() + lead_s
    for _ in range(count):
        due += random.expovariate(PER_S)
        app.tasks["bench.arrive"].apply_async((due,), eta=datetime.fromtimestamp(due, UTC))
    app.close()
