"""The program of a contender's producer: reads commands from stdin, one a line as JSON, and answers each with a line.

Every contender has such a program, in its own language. The programs in Python share this part.
"""

import json
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import perf_counter, process_time, time
from typing import Any

#: Text that every task carries besides its due time, so that both have 1,000 bytes as JSON.
PAYLOAD = random.Random(1).randbytes(490).hex()
#: Messages in one bulk call.
BULK = 1_000
#: How many ids are kept for later cancelling.
KEPT = 2_000


class Cannot(Exception):
    """The contender has no such operation."""


class Producer(ABC):
    """What a contender's producer can do, through its public API."""

    @abstractmethod
    def one(self, due: float) -> Any:
        """Enqueues a task that is due then, in s since the epoch, or at once where that is past. Returns its id."""

    def each(self, dues: Sequence[float]) -> Sequence[Any]:
        """Calls ``one`` for each due time. A producer with an asynchronous API does so within its event loop."""
        return [self.one(due) for due in dues]

    def bulk(self, dues: Sequence[float]) -> Sequence[Any]:
        """Enqueues tasks in the way that is meant for many. Returns their ids."""
        raise Cannot("has no bulk operation")

    def cancel(self, identity: Any) -> None:
        """Removes a waiting task, by the id that enqueueing returned."""
        raise Cannot("cannot")

    def waiting(self) -> int:
        """Returns how many messages have not been moved to the place from which a worker takes them."""
        raise Cannot("does not tell")


class _Program:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._kept: list[Any] = []
        self._seen = 0

    def enqueue(self, count: int, first: float, last: float, bulk: bool) -> dict[str, float]:
        """Enqueues tasks whose due times are random between two.

        Returns:
            How long it took, the CPU time of this process, and how long before the earliest due time it was done,
            all in s.
        """
        dues = [random.uniform(first, last) for _ in range(count)]
        begun, cpu = perf_counter(), process_time()
        if bulk:
            kept: list[Any] = []
            for start in range(0, count, BULK):
                kept += self._producer.bulk(dues[start : start + BULK])
        else:
            kept = list(self._producer.each(dues))
        took = {"seconds": perf_counter() - begun, "cpu_s": process_time() - cpu, "ahead_s": first - time()}
        self._keep(kept)
        return took

    def cancel(self, count: int, within_s: float) -> list[float]:
        """Cancels random tasks of those enqueued, one by one. Returns how long each took, in s."""
        times: list[float] = []
        until = perf_counter() + within_s
        while len(times) < count and self._kept and perf_counter() < until:
            identity = self._kept.pop()
            begun = perf_counter()
            self._producer.cancel(identity)
            times.append(perf_counter() - begun)
        return times

    def waiting(self) -> int:
        """Returns how many messages wait."""
        return self._producer.waiting()

    def _keep(self, ids: Sequence[Any]) -> None:
        """Keeps a random sample of all ids, those of earlier commands as likely as these."""
        self._seen += len(ids)
        fresh = len(ids) if self._seen <= KEPT else round(KEPT * len(ids) / self._seen)
        older = min(len(self._kept), KEPT - fresh)
        self._kept = random.sample(self._kept, older) + random.sample(ids, fresh)
        random.shuffle(self._kept)


def serve(make: Callable[[], Producer]) -> None:
    """Answers commands until stdin ends.

    Args:
        make: Makes the producer. The address of its server is the environment variable ``BENCH_SERVER``.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints does not disturb the answers
    program = _Program(make())
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            answer["value"] = getattr(program, command.pop("do"))(**command)
        except Cannot as reason:
            answer["cannot"] = str(reason)
        except Exception as error:  # whatever it is, the benchmark shows it
            answer["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)
