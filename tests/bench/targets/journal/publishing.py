"""What the journal costs a publisher: ``apply_async`` and ``send_many`` with and without, on SQLite and PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from celery import Celery

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.publish import ARGS
from tests.bench.targets.report import Figure
from tests.support.servers.postgres import PrivatePostgres

#: Delays in s: of a message that waits in Redis, and of one that waits in the journal.
NEAR_S, FAR_S = 3600.0, 40 * 86_400.0
#: Least rate with a row for each message in SQLite, in parts of the rate without.
TARGET = 0.4
#: The journals, their option ``journal``, and the delay of the messages.
CASES = [("all", NEAR_S), ("far", FAR_S)]


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes with each journal, and without one in turns."""
    number, rounds = (1000, 5) if quick else (5000, 9)
    with TemporaryDirectory() as folder, PrivatePostgres(fsync="on", full_page_writes="on") as postgres:
        urls = {"SQLite": f"sqlite:///{Path(folder)}/journal.db", "PostgreSQL": postgres.make_schema()}
        for publish in (_one_by_one, _many):
            for database, url in urls.items():
                yield from _compare(server, publish, database, url, number, rounds)


def _compare(
    server: PrivateRedis,
    publish: Callable[[Celery, int, float], None],
    database: str,
    url: str,
    number: int,
    rounds: int,
) -> Iterator[Figure]:
    plain = make_app(server.url, OURS)
    apps = {which: make_app(server.url, OURS, {"journal_url": url, "journal": which}) for which, _ in CASES}
    rates: dict[str, list[float]] = {"none": [], "all": [], "far": []}
    for turn in range(rounds + 1):
        found = {"none": _rate(plain, publish, number, NEAR_S)}
        found |= {which: _rate(apps[which], publish, number, delay_s) for which, delay_s in CASES}
        server.client().flushdb()
        if turn:  # the first warms up
            for which, rate in found.items():
                rates[which].append(rate)
    name = {_one_by_one: "apply_async", _many: "send_many"}[publish]
    note = f"median of {rounds} rounds of {number:,}"
    yield Figure(f"{name}, {database}, without a journal", median(rates["none"]), "msg/s")
    for which in ("all", "far"):
        share = median(with_it / without for with_it, without in zip(rates[which], rates["none"], strict=True))
        target = TARGET if database == "SQLite" and which == "all" else None
        yield Figure(f"{name}, {database}, journal={which!r} / without", share, "", target, True, note)
        yield Figure(f"{name}, {database}, journal={which!r}", median(rates[which]), "msg/s")


def _one_by_one(app: Celery, number: int, delay_s: float) -> None:
    task = app.tasks["bench.arrive"]
    for _ in range(number):
        task.apply_async(ARGS, countdown=delay_s)


def _many(app: Celery, number: int, delay_s: float) -> None:
    send_many(app, "bench.arrive", (Call(ARGS) for _ in range(number)), countdown=delay_s)


def _rate(app: Celery, publish: Callable[[Celery, int, float], None], number: int, delay_s: float) -> float:
    begun = perf_counter()
    publish(app, number, delay_s)
    return number / (perf_counter() - begun)
