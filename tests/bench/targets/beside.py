"""What a fleet of workers costs and how late tasks begin: the jobs of ``make bench``, ours beside stock Celery."""

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench import jobs
from tests.bench.entrants import HASH, STOCK
from tests.bench.targets.report import Figure

#: How long a job may take, in s.
PATIENCE_S = 300.0


def idle(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Watches Redis while workers have nothing to do."""
    count = 10 if quick else 100
    yield from _both(partial(jobs.idle, count=count), f"{count} idle workers")


def lateness(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets tasks come due at random times, 100 a second; stock Celery has them in its worker's memory."""
    seconds = 5 if quick else 30
    work = partial(jobs.lateness, measure="late", count=100 * seconds, seconds=seconds)
    yield from _both(work, "100 due a second")


def _both(work: Callable[..., jobs.Found], what: str) -> Iterator[Figure]:
    found = [list(work(contender, deadline=monotonic() + PATIENCE_S)) for contender in (HASH, STOCK)]
    for ours, stock in zip(*found, strict=True):
        name = f"{what}: {ours.measure}"
        yield Figure(name, ours.value)
        yield Figure(f"{name}, stock", stock.value)
