"""How many messages are published, transferred and consumed, of one node and of three on the same cores."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from uuid import uuid4

from tests.bench.targets.cluster.places import Place, Worker, one_node, three_nodes, working
from tests.bench.targets.consume.kinds import TASK_ID, template
from tests.bench.targets.load import PER_CALL, fill, within_the_last_hour
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: Queues over which messages are spread, two on each of three nodes or about so, and messages in each.
QUEUES, EACH = 6, 400


class Cost(NamedTuple):
    """Messages a second, and the CPU time of all processes of the broker for one, in µs."""

    per_s: float
    redis_us: float


def measure(rounds: int) -> Iterator[Figure]:
    """Lets both do the same in turn, so that a busy machine disturbs both alike."""
    queues = [f"bench{number}" for number in range(QUEUES)]
    with ExitStack() as opened:
        sides = [_Side(opened, opened.enter_context(start()), queues) for start in (one_node, three_nodes)]
        found: dict[str, tuple[list[Cost], list[Cost]]] = {}
        for turn in range(rounds + 1):
            for at in (0, 1) if turn % 2 else (1, 0):
                for what, cost in sides[at].costs().items():
                    if turn:  # the first warms up
                        found.setdefault(what, ([], []))[at].append(cost)
    note = f"median of {rounds} rounds in turn, {QUEUES} queues, {QUEUES * EACH:,} messages of about 1 KB, no replicas"
    for what, (one, three) in found.items():
        for name, value in (("messages/s", "per_s"), ("messages for a CPU second of Redis", "redis_us")):
            ratios = [getattr(b, value) / getattr(a, value) for a, b in zip(one, three, strict=True)]
            of_three = median(ratios) if value == "per_s" else median(1 / ratio for ratio in ratios)
            yield Figure(f"{what}, {name}, three nodes / one", of_three, "", note=note)
        for side, those in (("one node", one), ("three nodes", three)):
            yield Figure(f"{what}, {side}", median(cost.per_s for cost in those), "msg/s")
            yield Figure(f"{what}, {side}, Redis CPU", median(cost.redis_us for cost in those), "µs/msg")


class _Side:
    """A broker with a worker that is stopped except when it consumes."""

    def __init__(self, opened: ExitStack, place: Place, queues: Sequence[str]) -> None:
        self._place, self._queues, self._app = place, queues, place.app()
        connection: Any = opened.enter_context(self._app.connection())
        self._store = connection.default_channel.store
        self._worker: Worker = opened.enter_context(working(place, queues))
        self._template = template()
        #: Nobody consumes these.
        self._aside = [f"aside{number}" for number in range(QUEUES)]
        self._send(signal.SIGSTOP)
        opened.callback(self._send, signal.SIGCONT)

    def costs(self) -> dict[str, Cost]:
        """Publishes, transfers and consumes; returns what each took."""
        found = {
            "publish one by one": self._cost(QUEUES * EACH // 4, self._publish),
            "publish 200 a call": self._cost(QUEUES * EACH, self._fill),
            "transfer": self._cost(QUEUES * EACH, self._transfer),
        }
        self._empty()
        for queue in self._queues:
            made = [self._template.replace(TASK_ID, str(uuid4())) for _ in range(EACH)]
            self._place.client.lpush(queue, *made)
        found["consume"] = self._cost(QUEUES * EACH, self._consume)
        return found

    def _cost(self, messages: int, work: Callable[[], object]) -> Cost:
        redis_s, begun = self._place.cpu_s(), perf_counter()
        work()
        took_s = perf_counter() - begun
        return Cost(messages / took_s, (self._place.cpu_s() - redis_s) / messages * 1e6)

    def _publish(self) -> None:
        task = self._app.tasks["bench.begin"]
        for number in range(QUEUES * EACH // 4):
            task.apply_async((0.0,), queue=self._aside[number % QUEUES], countdown=3600)

    def _fill(self) -> None:
        due_ms = within_the_last_hour()
        for _ in range(EACH // PER_CALL):
            for queue in self._aside:
                fill(self._store, PER_CALL, due_ms, queue=queue)

    def _transfer(self) -> None:
        moved = 0
        while moved < QUEUES * EACH:
            for queue in self._aside:
                moved += self._store.delivery.transfer(queue).moved

    def _empty(self) -> None:
        for queue in self._aside:
            for key in (*self._store.keys.stored(queue, "hash"), queue):
                self._place.client.delete(key)

    def _consume(self) -> None:
        before = self._worker.journal.count()
        self._send(signal.SIGCONT)
        try:
            until(lambda: self._worker.journal.count() >= before + QUEUES * EACH, 60, "all tasks have begun")
        finally:
            self._send(signal.SIGSTOP)

    def _send(self, what: signal.Signals) -> None:
        for pid in self._worker.pids:
            os.killpg(pid, what)
