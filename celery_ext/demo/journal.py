"""What the demo's tasks write down, and the verdict on it."""

import json
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple

import redis


class Arrival(NamedTuple):
    """A task that ran.

    Attributes:
        number: Which of the demo's tasks.
        worker: Name of the worker that ran it.
        late_ms: From its due time to its start; negative is early.
    """

    number: int
    worker: str
    late_ms: float


class Journal:
    """A list in Redis, in a database of its own."""

    DB: ClassVar = 1
    _KEY: ClassVar = "demo:arrivals"

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def write(self, *arrival: object) -> None:
        """Notes an arrival."""
        self._client.rpush(self._KEY, json.dumps(arrival))

    def read(self, after: int) -> list[Arrival]:
        """Returns the arrivals after the first ``after``."""
        return [Arrival(*json.loads(line)) for line in self._client.lrange(self._KEY, after, -1)]


@dataclass(frozen=True)
class Verdict:
    """Whether every task ran once and not early.

    Attributes:
        sent: Numbers of the tasks that were sent.
        arrivals: All that ran.
    """

    sent: frozenset[int]
    arrivals: tuple[Arrival, ...]

    @property
    def lost(self) -> int:
        """How many never ran."""
        return len(self.sent - {arrival.number for arrival in self.arrivals})

    @property
    def double(self) -> int:
        """How many ran more than once."""
        return sum(count > 1 for count in Counter(arrival.number for arrival in self.arrivals).values())

    @property
    def early(self) -> int:
        """How many ran before they were due."""
        return sum(arrival.late_ms < 0 for arrival in self.arrivals)

    @property
    def good(self) -> bool:
        """Whether none was lost, double or early."""
        return not (self.lost or self.double or self.early)

    def rows(self) -> list[list[str]]:
        """The verdict as rows of a table."""
        late = sorted(arrival.late_ms for arrival in self.arrivals) or [0.0]
        by_worker = Counter(arrival.worker for arrival in self.arrivals)
        return [
            ["sent", str(len(self.sent))],
            ["ran", f"{len(self.arrivals)} ({', '.join(f'{name} {n}' for name, n in sorted(by_worker.items()))})"],
            ["lost", str(self.lost)],
            ["early", str(self.early)],
            ["double", str(self.double)],
            ["late, median", f"{median(late):.1f} ms"],
            ["late, worst", f"{late[-1]:.1f} ms"],
        ]
