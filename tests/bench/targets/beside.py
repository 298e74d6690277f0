"""What a fleet of workers costs and how late tasks begin: the jobs of ``make bench``, ours beside stock Celery."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import random
from tempfile import TemporaryDirectory
from time import monotonic, time

import redis

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import LAYOUTS
from tests.bench import jobs
from tests.bench.entrants import HASH, STOCK
from tests.bench.targets.app import OURS, TASK, make_app
from tests.bench.targets.consume import TAKE, Worker
from tests.bench.targets.load import fill, make_store
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: How long a job may take, in s.
PATIENCE_S = 300.0
#: Tasks of a queue while another one floods, and within how many s they come due.
QUIET, QUIET_S = 500, 5.0
#: How long it may take to send what floods, in s: in any case, and for each.
FILL_S, FILL_EACH_S = 5.0, 0.000_1


def idle(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Watches Redis while workers have nothing to do."""
    count = 10 if quick else 100
    yield from _both(partial(jobs.idle, count=count), f"{count} idle workers")


def lateness(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets tasks come due at random times, 100 a second; stock Celery has them in its worker's memory."""
    seconds = 5 if quick else 30
    work = partial(jobs.lateness, measure="late", count=100 * seconds, seconds=seconds)
    yield from _both(work, "100 due a second")


def flood(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets tasks of one queue come due at random times, while another one has far more, which nobody consumes."""
    count = 10_000 if quick else 100_000
    app, store = make_app(server.url, OURS), make_store(redis.Redis(port=server.port), LAYOUTS[0])
    with TemporaryDirectory(prefix="delayq-bench-") as folder, closing(store):
        worker = Worker(TAKE, server, Path(folder), "threads")
        try:
            app.tasks[TASK].apply_async((time(),))
            until(lambda: worker.journal.count() == 1, 60, "the worker runs a task")
            first = time() + FILL_S + count * FILL_EACH_S
            fill(store, count, lambda: (first + random()) * 1000, queue="flood")
            dues = sorted(first + random() * QUIET_S for _ in range(QUIET))
            send_many(app, TASK, (Call((due,), eta=datetime.fromtimestamp(due, UTC)) for due in dues))
            if time() > first:
                raise RuntimeError("the machine is too busy: the first tasks came due before all were sent")
            until(lambda: worker.journal.count() == QUIET + 1, PATIENCE_S, "the tasks of the quiet queue have run")
        finally:
            worker.close()
        late_ms = sorted(late_s * 1000 for late_s in worker.journal.late_s()[1:])
    name, note = f"quiet queue while another floods {count:,}", f"{QUIET} tasks within {QUIET_S:.0f} s"
    yield Figure(f"{name}: late, median", late_ms[QUIET // 2], "ms")
    yield Figure(f"{name}: late, 99 %", late_ms[QUIET * 99 // 100], "ms", 20, note=note)


def _both(work: Callable[..., jobs.Found], what: str) -> Iterator[Figure]:
    found = [list(work(contender, deadline=monotonic() + PATIENCE_S)) for contender in (HASH, STOCK)]
    for ours, stock in zip(*found, strict=True):
        name = f"{what}: {ours.measure}"
        yield Figure(name, ours.value)
        yield Figure(f"{name}, stock", stock.value)
