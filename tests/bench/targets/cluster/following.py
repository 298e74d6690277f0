"""What it costs a process to follow the nodes of a cluster, beside a client that knows one server."""

import random
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time_ns
from typing import Any

from tests.bench.targets.cluster.places import Place, with_slots
from tests.bench.targets.load import PER_CALL, QUEUE, fill, within_the_last_hour
from tests.bench.targets.report import Figure

#: The most CPU time of the client of a cluster, of that of the plain one.
TARGET = 1.10
#: Messages that are published in one batch.
BATCH = 50


def measure(calls: int) -> Iterator[Figure]:
    """Lets both clients do the same in turn, call by call, at one server that has all hash slots."""
    with with_slots() as places:
        sides = [_Side(place) for place in places]
        for what, messages in {
            "apply_async": 1,
            "apply_async, countdown": 1,
            "Producer.batch": BATCH,
            "transfer, one a call": 1,
            "transfer, 200 a call": PER_CALL,
        }.items():
            often = max(10, calls // (1 if messages == 1 else 10))
            plain, cluster = _costs_us(sides, what, often)
            note = f"one server with all hash slots; median of {often} calls each, one by one in turn"
            name = f"following, client's CPU, {what}"
            yield Figure(f"{name}, cluster / plain", median(cluster) / median(plain), "", TARGET, note=note)
            yield Figure(f"{name}, plain", median(plain) / messages, "µs/msg")
            places[0].client.flushall()
        for side in sides:
            side.close()


def _costs_us(sides: "list[_Side]", what: str, often: int) -> tuple[list[float], list[float]]:
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(often + 5):
        for at in random.sample((0, 1), 2):
            work = sides[at].ready_for(what)
            before = process_time_ns()
            work()
            if turn >= 5:  # the first ones warm up
                found[at].append((process_time_ns() - before) / 1000)
    return found


class _Side:
    """One of the two clients."""

    def __init__(self, place: Place) -> None:
        self._app, self._queue = place.app(), f"{QUEUE}-{place.transport}"
        self._connection: Any = self._app.connection()
        self._store = self._connection.default_channel.store
        self._task = self._app.tasks["bench.begin"]

    def ready_for(self, what: str) -> Callable[[], object]:
        """Prepares a call of an operation, and returns it."""
        if what.startswith("transfer"):
            fill(self._store, PER_CALL if "200" in what else 1, within_the_last_hour(), queue=self._queue)
            return lambda: self._store.delivery.transfer(self._queue)
        if what == "Producer.batch":
            return self._batch
        delay = {"countdown": 600} if "countdown" in what else {}
        return lambda: self._task.apply_async((0.0,), queue=QUEUE, **delay)

    def _batch(self) -> None:
        with self._app.producer_pool.acquire(block=True) as producer, producer.batch():
            for _ in range(BATCH):
                self._task.apply_async((0.0,), queue=QUEUE, countdown=600, producer=producer)

    def close(self) -> None:
        self._connection.close()
        self._app.close()
