"""A publisher: notes what it means to publish, publishes it, and notes that it is published.

It repeats what raised an error, with the same id and due time, until it is published. SIGTERM ends it after the call in
hand.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from threading import Event
from typing import Any, NamedTuple

import kombu.exceptions
import redis

from celery_ext import Call, send_many
from celery_ext.journal import placement
from kombu_delayq.errors import StoreUnavailable
from tests.chaos.fleet.app import CHAIN_S, eta_of, make_app
from tests.chaos.fleet.setup import OURS, OURS_ONLY, QUEUES, Setup, key_of, owner_of, waiting_key_of
from tests.chaos.ledger.events import Ledger

#: Names of the tasks by kind.
TASKS = {
    "plain": "chaos.late",
    "delayed": "chaos.late",
    "early": "chaos.early",
    "retry": "chaos.retry",
    "chain": "chaos.chain",
    "keyed": "chaos.keyed",
    "once": "chaos.once",
    "letter": "chaos.letter",
}
#: Calls of one `send_many`; the share of turns that use it; the longest delay in s; how often a retried task fails.
MANY, MANY_SHARE, LONGEST_S, TRIES = 100, 0.3, 5.0, (1, 2)
#: Share of single tasks that have a priority, and the priorities.
PRIORITY_SHARE, PRIORITIES = 0.15, range(10)
#: Pause before what failed is published again, and between two looks at a full queue, in s.
PAUSE_S = 0.1
FAILURES = (kombu.exceptions.OperationalError, redis.RedisError, OSError, StoreUnavailable)


class Planned(NamedTuple):
    """A task to be published: id, kind, queue, how often it fails, due time in s since the epoch (0: at once)."""

    id: str
    kind: str
    queue: str
    tries: int
    due: float

    def intent(self) -> str:
        """Returns its line of the ledger."""
        return f"I {self.id} {self.kind} {self.queue} {self.tries} {self.due!r} {time.time()!r}"

    def args(self) -> tuple[int | str, ...]:
        """Returns the arguments of the task."""
        return (self.tries,) if self.kind in ("retry", "chain") else (self.id,) if self.kind == "once" else ()

    def published_id(self) -> str:
        """Returns the task id: of tasks of which one waits, those that are alike have one."""
        return waiting_key_of(self.id) if self.kind == "once" else self.id

    def options(self) -> dict[str, Any]:
        """Returns the options of the call, which calls that are sent together share."""
        if self.kind == "chain":
            return {"delay_chain": ",".join(f"{step}s" for step in CHAIN_S)}
        if self.kind == "once":
            return {"if_waiting": "replace" if int(self.id.rpartition(".")[2]) % 2 else "keep"}
        return {}


class Publisher:
    """Publishes until it is stopped."""

    def __init__(self, setup: Setup, stopping: Event) -> None:
        self._setup = setup
        self._stopping = stopping
        self._app = make_app(setup)
        self._ledger = Ledger(setup.ledger, setup.name, setup.by)
        self._random = random.Random(f"{setup.seed} {setup.name} {setup.incarnation}")
        self._ids = self._numbered()
        self._queues = setup.queues or tuple(QUEUES[by] for by in setup.audiences)

    def run(self) -> None:
        """Publishes in turns, as fast as the setup allows."""
        begun, published = time.monotonic(), 0
        while not self._stopping.is_set():
            queue = self._random.choice(self._queues)
            if self._is_full(queue):
                self._stopping.wait(PAUSE_S)
                begun, published = time.monotonic(), 0
                continue
            published += self._turn(queue)
            self._stopping.wait(max(0.0, begun + published / self._setup.rate - time.monotonic()))

    def _turn(self, queue: str) -> int:
        """Publishes one task, or many. Returns how many."""
        if self._setup.by == OURS and self._random.random() < MANY_SHARE:
            kind = self._kind(queue)
            tasks = [self._planned(kind, queue) for _ in range(MANY)]
            self._publish(tasks, lambda: self._send_many(tasks))
            return MANY
        task = self._planned(self._kind(queue), queue)
        priority = self._random.choice(PRIORITIES) if self._random.random() < PRIORITY_SHARE else 0
        self._publish([task], lambda: self._send(task, priority))
        return 1

    def _publish(self, tasks: list[Planned], send: Callable[[], list[str]]) -> None:
        """Publishes until it has worked. ``send`` returns the outcome of each task of a waiting key."""
        self._ledger.write_many([task.intent() for task in tasks])
        while True:
            try:
                outcomes = send()
                break
            except FAILURES:
                self._ledger.write_many([f"E {task.id} {time.time()!r}" for task in tasks])
                time.sleep(PAUSE_S)
        now = repr(time.time())
        pairs = zip_longest(tasks, outcomes, fillvalue="added")
        self._ledger.write_many([f"C {task.id} {outcome} {now}" for task, outcome in pairs])

    def _send(self, task: Planned, priority: int) -> list[str]:
        result: Any = self._app.send_task(
            TASKS[task.kind],
            task.args(),
            task_id=task.published_id(),
            queue=task.queue,
            priority=priority,
            **({"eta": eta_of(task.due)} if task.due else {}),
            **task.options(),
            **({"limit": key_of(task.id)} if task.kind == "keyed" else {}),
        )
        return [result.if_waiting] if task.kind == "once" else []

    def _send_many(self, tasks: list[Planned]) -> list[str]:
        calls = (
            Call(
                task.args(),
                eta=eta_of(task.due) if task.due else None,
                task_id=task.published_id(),
                limit=key_of(task.id) if task.kind == "keyed" else None,
            )
            for task in tasks
        )
        first, found = tasks[0], []
        send_many(self._app, TASKS[first.kind], calls, queue=first.queue, on_outcomes=found.extend, **first.options())
        return [outcome for _, outcome in found] if first.kind == "once" else []

    def _kind(self, queue: str) -> str:
        kinds = [kind for kind in self._setup.kinds if kind not in OURS_ONLY or owner_of(queue) == OURS]
        return self._random.choice(kinds)

    def _planned(self, kind: str, queue: str) -> Planned:
        delayed = kind in ("delayed", "once") or (kind != "plain" and self._random.random() < 0.5)
        due = round(time.time() + self._random.uniform(0.05, LONGEST_S), 3) if delayed else 0.0
        tries = self._random.choice(TRIES) if kind in ("retry", "chain") else int(kind == "letter")
        return Planned(next(self._ids), kind, queue, tries, due)

    def _numbered(self) -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"{self._setup.name}.{self._setup.incarnation}.{number}"

    def _is_full(self, queue: str) -> bool:
        try:
            with self._app.connection_or_acquire() as connection:
                return int(connection.default_channel._size(queue)) > self._setup.backlog
        except FAILURES:
            return True


def main() -> None:
    """Runs the publisher of this process's setup."""
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda signum, frame: stopping.set())
    setup = Setup.of_environment()
    if setup.clock_off_s:
        vars(placement)["time"] = lambda: time.time() + setup.clock_off_s
    Publisher(setup, stopping).run()


if __name__ == "__main__":
    main()
