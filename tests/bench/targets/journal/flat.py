"""What single operations on the tables cost, out of few rows and out of ten million."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median
from time import perf_counter, time

from celery_ext.journal.table import Addition, Journal
from tests.bench.targets.journal.filled import fill, id_of, postgres
from tests.bench.targets.report import Figure

HOUR_MS = 3_600_000.0
#: By name: the target in ms, None for one that only has to stay flat.
TARGETS_MS: dict[str, float | None] = {
    "cancel": 3.0,
    "page of 100": 10.0,
    "get": None,
    "count of 90 days": None,
    "due counts of a day": None,
    "add": None,
    "first 500 to promote": None,
}


def measure(quick: bool) -> Iterator[Figure]:
    """Does the same to a small and to a large journal in PostgreSQL, whose rows are due within a year, in turn."""
    rows, calls = ((100_000, 500_000), 200) if quick else ((100_000, 10_000_000), 1_000)
    with ExitStack() as running:
        journals = []
        for number in rows:
            journal = Journal(running.enter_context(postgres()).make_schema())
            running.callback(journal.engine.dispose)
            fill(journal, 0, number)
            journals.append((journal, [id_of(at) for at in random.sample(range(1, number + 1), 2 * calls)]))
        yield from _compare(journals, calls, f"{rows[0]:,} and {rows[1]:,} rows of 1 KB")


def _compare(journals: list[tuple[Journal, list[str]]], calls: int, note: str) -> Iterator[Figure]:
    took_ms: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in TARGETS_MS}
    acts = [_acts(*one) for one in journals]
    for name in TARGETS_MS:
        for at in range(calls):
            for which, act in enumerate(acts):
                begun = perf_counter()
                act[name]()
                if at >= calls // 10:  # the first find nothing in any cache
                    took_ms[name][which].append((perf_counter() - begun) * 1000)
    for name, target in TARGETS_MS.items():
        of_small, of_large = map(median, took_ms[name])
        yield Figure(f"{name}, large journal, median", of_large, "ms", target, note=note)
        yield Figure(f"{name}, rate in the large journal / in the small", of_small / of_large, "", 0.7, True)


def _acts(journal: Journal, ids: list[str]) -> dict[str, Callable[[], object]]:
    queues, now_ms, to_get = journal.queues(), time() * 1000, ids[::2]
    day_ms = now_ms + 40 * 24 * HOUR_MS
    to_cancel, new = iter(ids[1::2]), iter(range(1_000_000))

    def cancel() -> None:
        if len(journal.delete([next(to_cancel)])) != 1:
            raise RuntimeError("an id was not found")

    def page() -> None:
        from_ms = day_ms + random.uniform(0, 12) * HOUR_MS
        if len(journal.browse(random.choice(queues), None, from_ms)) != 100:
            raise RuntimeError("a page is not full")

    def add() -> None:
        number = next(new)
        journal.add([Addition(random.choice(queues), f"new {number}", now_ms + 1e10 + number, 0, b"x" * 1000)])

    return {
        "cancel": cancel,
        "page of 100": page,
        "get": lambda: journal.get([random.choice(to_get)]),
        "count of 90 days": lambda: journal.count(queues[0], now_ms + 2 * HOUR_MS, now_ms + 90 * 24 * HOUR_MS),
        "due counts of a day": lambda: journal.due_counts(queues[:1], [day_ms + hour * HOUR_MS for hour in range(25)]),
        "add": add,
        "first 500 to promote": lambda: journal.promotable(now_ms + 400 * 24 * HOUR_MS, 500),
    }
