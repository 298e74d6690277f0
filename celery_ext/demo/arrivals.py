"""Records when the demo's tasks run, and judges the record."""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import ClassVar, NamedTuple

import redis

from celery_ext import DelayChain


class Arrival(NamedTuple):
    """A run of a task. A task that is retried has one for each try.

    Attributes:
        number: Number of the task among those of the demo.
        worker: Name of the worker that ran it.
        late_ms: Time from its due time to its start; negative is early.
        at: When it started, s since the epoch.
        retries: How often it was retried before.
    """

    number: int
    worker: str
    late_ms: float
    at: float = 0.0
    retries: int = 0


class Arrivals:
    """Keeps arrivals in a list in Redis, in a database of its own."""

    DB: ClassVar = 1
    _KEY: ClassVar = "demo:arrivals"

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def write(self, arrival: Arrival) -> None:
        """Adds an arrival."""
        self._client.rpush(self._KEY, json.dumps(arrival))

    def read(self, after: int) -> list[Arrival]:
        """Returns all arrivals but the first ``after``."""
        return [Arrival(*json.loads(line)) for line in self._client.lrange(self._KEY, after, -1)]


@dataclass(frozen=True)
class Verdict:
    """Whether every task ran as often as it should, and not early.

    Attributes:
        sent: Numbers of the tasks that have to run once.
        arrivals: All runs.
        chain: Retry schedule of the task ``chained``, which has to fail before each step and succeed after the last.
        chained: Number of the task with the retry schedule.
        cancelled: Number of the task that was cancelled, and must not run.
    """

    sent: frozenset[int]
    arrivals: tuple[Arrival, ...]
    chain: DelayChain
    chained: int
    cancelled: int

    @property
    def lost(self) -> int:
        """How many tasks of ``sent`` never ran."""
        return len(self.sent - {arrival.number for arrival in self.arrivals})

    @property
    def double(self) -> int:
        """How many tasks of ``sent`` ran more than once."""
        return sum(count > 1 for count in Counter(arrival.number for arrival in self._once).values())

    @property
    def early(self) -> int:
        """How many runs were before their due time, including the tries of the chain."""
        tries = zip(pairwise(self._tries), self.chain, strict=False)
        short = sum(after.at - before.at < step.total_seconds() for (before, after), step in tries)
        return sum(arrival.late_ms < 0 for arrival in self.arrivals) + short

    @property
    def retried(self) -> bool:
        """Whether the chain went through all its steps, each once."""
        return [arrival.retries for arrival in self._tries] == list(range(len(self.chain) + 1))

    @property
    def cancelled_ran(self) -> int:
        """How often the task that was cancelled ran."""
        return sum(arrival.number == self.cancelled for arrival in self.arrivals)

    @property
    def good(self) -> bool:
        """Whether all is as it should be."""
        return self.retried and not (self.lost or self.double or self.early or self.cancelled_ran)

    def rows(self) -> list[list[str]]:
        """Returns the verdict as rows of a table."""
        once = self._once
        late = sorted(arrival.late_ms for arrival in once) or [0.0]
        by_worker = Counter(arrival.worker for arrival in once)
        tries = len(self._tries)
        failed = f"failed {len(self.chain)} times, then succeeded"
        return [
            ["sent", str(len(self.sent))],
            ["ran", f"{len(once)} ({', '.join(f'{name} {n}' for name, n in sorted(by_worker.items()))})"],
            ["lost", str(self.lost)],
            ["early", str(self.early)],
            ["double", str(self.double)],
            ["late, median", f"{median(late):.1f} ms"],
            ["late, worst", f"{late[-1]:.1f} ms"],
            [f"chain {self.chain}", failed if self.retried else f"tried {tries} times, not {len(self.chain) + 1}"],
            ["cancelled", f"ran {self.cancelled_ran} times" if self.cancelled_ran else "never ran"],
        ]

    @property
    def _once(self) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.number in self.sent]

    @property
    def _tries(self) -> list[Arrival]:
        tries = (arrival for arrival in self.arrivals if arrival.number == self.chained)
        return sorted(tries, key=lambda arrival: arrival.at)
