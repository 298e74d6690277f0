"""How fast rows are promoted to Redis, and whether those that wait longer slow that down."""

from collections.abc import Iterator
from statistics import median
from time import perf_counter

import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.journal.promotion.office import Office
from celery_ext.journal.promotion.rounds import Rounds
from kombu_delayq.options import Options
from kombu_delayq.store.keys import Keys
from tests.bench.targets.journal.filled import QUEUE, fill, postgres
from tests.bench.targets.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Promotes the same number of rows out of small tables and out of a large one."""
    soon, small, large = (20_000, 100_000, 500_000) if quick else (100_000, 100_000, 10_000_000)
    of_small = median(_rate(server, soon, small - soon) for _ in range(1 if quick else 3))
    of_large = _rate(server, soon, large - soon)
    note = f"{soon:,} rows of 1 KB are due soon, of {large:,}; read, put into Redis and marked, PostgreSQL with fsync"
    yield Figure(f"promotion, {large:,} rows", of_large, "rows/s", 20_000, True, note)
    yield Figure(f"promotion, {small:,} rows", of_small, "rows/s", 20_000, True)
    yield Figure(f"promotion, rate at {large:,} / at {small:,}", of_large / of_small, "", 0.7, True)


def _rate(server: PrivateRedis, soon: int, later: int) -> float:
    """Returns the rows promoted a second."""
    server.client().flushall()
    with postgres() as database:
        options = Options(journal_url=database.make_schema())
        store = JournaledStore(redis.Redis(port=server.port), Keys(), (0, 3, 6, 9), options)
        fill(store.journal, soon, later)
        office = Office(store)
        office.take()
        begun = perf_counter()
        done = Rounds(store, office, lambda: True).run()
        took_s = perf_counter() - begun
        if done.promoted != soon or store.redis_alone.queues.size(QUEUE) != soon or store.promotion.pushed():
            raise RuntimeError(f"{done} of {soon} rows")
        store.close()
        store.journal.engine.dispose()
        return soon / took_s
