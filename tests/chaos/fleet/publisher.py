"""A publisher: notes what it means to publish, publishes it, and notes that it is published.

It repeats what raised an error, with the same id and due time, until it is published. SIGTERM ends it after the call in
hand.
"""

import random
import signal
import time
from collections.abc import Iterator
from threading import Event
from typing import Any, NamedTuple

import kombu.exceptions
import redis

from celery_ext import Call, send_many
from celery_ext.journal import placement
from kombu_delayq.errors import StoreUnavailable
from tests.chaos.fleet.app import CHAIN_S, eta_of, make_app
from tests.chaos.fleet.setup import OURS, QUEUES, Setup, key_of, owner_of
from tests.chaos.ledger.events import Ledger

#: Names of the tasks by kind.
TASKS = {
    "plain": "chaos.late",
    "delayed": "chaos.late",
    "early": "chaos.early",
    "retry": "chaos.retry",
    "chain": "chaos.chain",
    "keyed": "chaos.keyed",
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

    def args(self) -> tuple[int, ...]:
        """Returns the arguments of the task."""
        return (self.tries,) if self.kind in ("retry", "chain") else ()


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

    def _publish(self, tasks: list[Planned], send: Any) -> None:
        self._ledger.write_many([task.intent() for task in tasks])
        while True:
            try:
                send()
                break
            except FAILURES:
                self._ledger.write_many([f"E {task.id} {time.time()!r}" for task in tasks])
                time.sleep(PAUSE_S)
        now = repr(time.time())
        self._ledger.write_many([f"C {task.id} {now}" for task in tasks])

    def _send(self, task: Planned, priority: int) -> None:
        self._app.send_task(
            TASKS[task.kind],
            task.args(),
            task_id=task.id,
            queue=task.queue,
            priority=priority,
            **({"eta": eta_of(task.due)} if task.due else {}),
            **_chain(task.kind),
            **({"limit": key_of(task.id)} if task.kind == "keyed" else {}),
        )

    def _send_many(self, tasks: list[Planned]) -> None:
        calls = (
            Call(
                task.args(),
                eta=eta_of(task.due) if task.due else None,
                task_id=task.id,
                limit=key_of(task.id) if task.kind == "keyed" else None,
            )
            for task in tasks
        )
        send_many(self._app, TASKS[tasks[0].kind], calls, queue=tasks[0].queue, **_chain(tasks[0].kind))

    def _kind(self, queue: str) -> str:
        # Delay chains and limits are followed by our workers only.
        kinds = [kind for kind in self._setup.kinds if kind not in ("chain", "keyed") or owner_of(queue) == OURS]
        return self._random.choice(kinds)

    def _planned(self, kind: str, queue: str) -> Planned:
        delayed = kind == "delayed" or (kind in ("early", "retry", "chain", "keyed") and self._random.random() < 0.5)
        due = round(time.time() + self._random.uniform(0.05, LONGEST_S), 3) if delayed else 0.0
        tries = self._random.choice(TRIES) if kind in ("retry", "chain") else 0
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


def _chain(kind: str) -> dict[str, Any]:
    """Returns the option that gives a task its delay chain."""
    return {"delay_chain": ",".join(f"{step}s" for step in CHAIN_S)} if kind == "chain" else {}


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
