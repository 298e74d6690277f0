"""How many tasks a second a worker begins that do nothing, and what a message costs Redis."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from time import monotonic, sleep
from typing import NamedTuple

import psutil

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.servers import main_thread_s
from tests.bench.targets.consume.kinds import BRPOP, PLUS, PLUS_PYTHON, STOCK, TAKE, Bench, Kind, bench, plus_missing
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: The least rate and the most CPU time of Redis, both of stock's, by pool. Source: measured with a probe.
TARGETS: dict[str, tuple[float, float | None]] = {"threads": (3.0, 0.7), "solo": (2.2, None), "prefork": (1.3, 0.9)}
#: Tasks begun before the watch: what is imported and connected late has been by then.
WARM = 400
#: The workers go on and stop in turns: for how long each, in s, and how often. None is stopped for a second: it would
#: give back what it holds.
TURN_S, TURNS = 0.3, 12


class Turn(NamedTuple):
    """What was seen of one worker in a turn.

    Attributes:
        took_s: Length of the turn in s.
        tasks: Tasks begun.
        redis_s: CPU time of Redis's main thread in s.
        worker_s: CPU time of the worker and its children in s.
    """

    took_s: float
    tasks: int
    redis_s: float
    worker_s: float


class Cost(NamedTuple):
    """What was seen of one worker in all its turns.

    Attributes:
        per_s: Tasks begun a second: the median of all turns.
        redis_us: CPU time of Redis's main thread for a task, in µs.
        worker_us: CPU time of the worker and its children for a task, in µs.
    """

    per_s: float
    redis_us: float
    worker_us: float

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> "Cost":
        """Sums up turns."""
        tasks = sum(turn.tasks for turn in turns)
        redis_s, worker_s = sum(turn.redis_s for turn in turns), sum(turn.worker_s for turn in turns)
        return cls(median(turn.tasks / turn.took_s for turn in turns), redis_s / tasks * 1e6, worker_s / tasks * 1e6)


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets workers of each kind take turns, pool by pool."""
    missing, turns = plus_missing(), TURNS // 3 if quick else TURNS
    # All kinds run with the same Python, which with celery-redis-plus is another than this one.
    python, plus = (sys.executable, ()) if missing else (PLUS_PYTHON, (PLUS,))
    note = f"{turns} turns of {TURN_S} s, Celery's default concurrency; {missing or _python(python)}"
    for pool, targets in TARGETS.items():
        yield from _compared(_turns([STOCK, TAKE, *plus, BRPOP], python, pool, turns), pool, targets, note)


def _turns(kinds: Sequence[Kind], python: str, pool: str, turns: int) -> dict[Kind, Cost]:
    """Starts a worker of each kind. Lets one go on at a time while the others are stopped by SIGSTOP.

    So the rest of the machine disturbs all of them alike.
    """
    with ExitStack() as opened:
        workers: dict[Kind, Watched] = {}
        for kind in kinds:
            one = opened.enter_context(bench(kind, python))
            one.fill(kind.filled)
            workers[kind] = Watched(one, opened.enter_context(one.worker("--pool", pool)))
        found: dict[Kind, list[Turn]] = {kind: [] for kind in kinds}
        for _ in range(turns):
            for kind in kinds:
                found[kind].append(workers[kind].turn())
    return {kind: Cost.of(those) for kind, those in found.items()}


class Watched:
    """A worker that is stopped except in its turns.

    Args:
        one: Its Redis and journal.
        pid: Its process id, which is that of the group of its children too.
    """

    def __init__(self, one: Bench, pid: int) -> None:
        self._one, self._pid, self._worker = one, pid, psutil.Process(pid)
        self._client = one.server.client()
        until(lambda: one.journal.count() >= WARM, 60, f"a worker with {one.kind.name} runs tasks")
        os.killpg(pid, signal.SIGSTOP)

    def turn(self) -> Turn:
        """Lets it go on for a while."""
        journal = self._one.journal
        before, redis_s, worker_s = journal.count(), main_thread_s(self._client), self._cpu_s()
        os.killpg(self._pid, signal.SIGCONT)
        begun = monotonic()
        sleep(TURN_S)
        os.killpg(self._pid, signal.SIGSTOP)
        took_s, count = monotonic() - begun, journal.count() - before
        if journal.count() >= self._one.kind.filled:
            raise RuntimeError(f"{self._one.kind.name} has run all of its {self._one.kind.filled:,} tasks")
        redis_s, worker_s = main_thread_s(self._client) - redis_s, self._cpu_s() - worker_s
        return Turn(took_s, count, redis_s, worker_s)

    def _cpu_s(self) -> float:
        """Returns the CPU time of the worker and its children."""
        return sum(sum(process.cpu_times()[:2]) for process in (self._worker, *self._worker.children(recursive=True)))


def _compared(found: dict[Kind, Cost], pool: str, targets: tuple[float, float | None], note: str) -> Iterator[Figure]:
    def ratio(kind: Kind, other: Kind, what: str) -> float:
        return float(getattr(found[kind], what) / getattr(found[other], what))

    others = [kind for kind in found if kind is not STOCK]
    for kind in others:
        target = targets[0] if kind is TAKE else None
        name, told = f"no-op tasks, {pool}, {kind.name} / stock", note if kind is TAKE else ""
        yield Figure(name, ratio(kind, STOCK, "per_s"), "", target, True, told)
    if PLUS in found:
        name = f"no-op tasks, {pool}, take / {PLUS.name}"
        yield Figure(name, ratio(TAKE, PLUS, "per_s"), "", 1.0, True)
    for kind in others:
        target = targets[1] if kind is TAKE else None
        yield Figure(f"Redis CPU a task, {pool}, {kind.name} / stock", ratio(kind, STOCK, "redis_us"), "", target)
    for kind in others:
        yield Figure(f"worker CPU a task, {pool}, {kind.name} / stock", ratio(kind, STOCK, "worker_us"), "")
    for kind, cost in found.items():
        yield Figure(f"no-op tasks, {pool}, {kind.name}", cost.per_s, "/s")
        yield Figure(f"Redis CPU a task, {pool}, {kind.name}", cost.redis_us, "µs")
        yield Figure(f"worker CPU a task, {pool}, {kind.name}", cost.worker_us, "µs")


def _python(python: str) -> str:
    """Returns the versions with which workers run."""
    code = "import platform, redis; print(f'Python {platform.python_version()}, redis {redis.__version__}')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
