"""How many tasks a second a worker runs, and how soon it begins one, beside stock Celery."""

import base64
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time
from typing import Any, NamedTuple
from uuid import uuid4

import psutil

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.journal import Journal
from tests.bench.servers import main_thread_s
from tests.bench.targets.app import BROKER, LIMITS, OURS, TASK, TRANSPORT, make_app
from tests.bench.targets.report import Figure
from tests.support.conditions import until

STOCK, TAKE = "stock", "kombu-delayq"
TRANSPORTS = {STOCK: "", TAKE: OURS}
#: The least rate and the most CPU time of Redis, both of stock's, by pool.
TARGETS: dict[str, tuple[float, float | None]] = {"threads": (7.0, 0.5), "solo": (6.0, None), "prefork": (3.5, 0.9)}
#: The same for tasks in the pool ``threads`` whose eta is over, as of all that were delayed.
DELAYED = (5.0, 0.5)
#: Tasks that wait when a worker starts: more than it begins while it is watched. Messages sent to Redis in one call.
FILLED, PUSHED = 30_000, 200
#: Tasks begun before the watch: what is imported and connected late has been by then.
WARM = 400
#: The workers go on and stop in turns: for how long each, in s, and how often. None is stopped for a second: it would
#: give back what it holds.
TURN_S, TURNS = 0.3, 12
#: Between two messages to an idle worker, in s: random, because a worker that waits does so in turns of 1 s.
BETWEEN_S = (0.01, 0.06)
QUEUE, TASK_ID = "celery", "00000000-0000-4000-8000-000000000000"


class Turn(NamedTuple):
    """What was seen of one worker in a turn: its length, tasks begun, and CPU time of Redis and of itself, in s."""

    took_s: float
    tasks: int
    redis_s: float
    worker_s: float


class Worker:
    """A ``celery worker`` with a Redis of its own, and the journal in which its tasks write.

    Args:
        kind: ``STOCK`` or ``TAKE``.
        server: Its Redis.
        folder: For the journal.
        pool: Celery's pool.
        options: Further ones of ``celery worker``.
        limits: The transport option.
    """

    def __init__(
        self, kind: str, server: PrivateRedis, folder: Path, pool: str, *options: str, limits: Any = None
    ) -> None:
        self.kind, self.server = kind, server
        self.client: Any = server.client()
        self.journal = Journal(folder / kind)
        env = {BROKER: server.url, TRANSPORT: TRANSPORTS[kind], "BENCH_JOURNAL": str(self.journal.path)}
        env |= {LIMITS: json.dumps(limits)} if limits else {}
        command = ["celery", "-A", "tests.bench.targets.app", "worker", "-l", "ERROR", "--pool", pool, *options]
        self._process = psutil.Popen(
            [sys.executable, "-m", *command],
            env={**os.environ, **env, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the worker and its children."""
        os.killpg(self._process.pid, number)

    def rss_mb(self) -> float:
        """Returns the resident memory of the worker and its children, in MB."""
        processes = (self._process, *self._process.children(recursive=True))
        return float(sum(process.memory_info().rss for process in processes)) / 1e6

    def threads(self) -> int:
        """Returns how many threads the worker has."""
        return int(self._process.num_threads())

    def cpu_s(self) -> float:
        """Returns the CPU time that the worker and its children have taken, in s."""
        return sum(sum(each.cpu_times()[:2]) for each in (self._process, *self._process.children(recursive=True)))

    def turn(self) -> Turn:
        """Lets a stopped worker go on for a while."""
        before, redis_s, cpu_s = self.journal.count(), main_thread_s(self.client), self.cpu_s()
        self.signal(signal.SIGCONT)
        begun = monotonic()
        sleep(TURN_S)
        self.signal(signal.SIGSTOP)
        took_s, count = monotonic() - begun, self.journal.count() - before
        if self.journal.count() >= FILLED:
            raise RuntimeError(f"a worker with {self.kind} has run all of its {FILLED:,} tasks")
        return Turn(took_s, count, main_thread_s(self.client) - redis_s, self.cpu_s() - cpu_s)

    def late_s(self, message: dict[str, Any]) -> float:
        """Pushes a message to the idle worker. Returns how much later its task begins, in s."""
        before = self.journal.count()
        self.client.lpush(QUEUE, with_due(message, time()))
        until(lambda: self.journal.count() > before, 10, f"a task begins in a worker with {self.kind}")
        return self.journal.late_s()[-1]

    def close(self) -> None:
        """Ends the worker."""
        self.signal(signal.SIGKILL)
        self._process.wait(10)


@contextmanager
def running(pool: str, filled: int, **options: Any) -> Iterator[dict[str, Worker]]:
    """Starts a worker of each kind, with tasks that wait. Returns when each of them has begun some."""
    message = template(**options)
    with ExitStack() as opened:
        folder, found = Path(opened.enter_context(TemporaryDirectory(prefix="delayq-bench-"))), {}
        for kind in TRANSPORTS:
            server = opened.enter_context(PrivateRedis())
            for page in copies(message, filled):
                server.client().lpush(QUEUE, *page)
            found[kind] = Worker(kind, server, folder, pool)
            opened.callback(found[kind].close)
        for worker in found.values():
            until(lambda worker=worker: worker.journal.count() >= min(filled, WARM), 60, "a worker runs tasks")
            if filled > WARM:
                worker.signal(signal.SIGSTOP)
        yield found


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets workers of each kind take turns, pool by pool, so that the rest of the machine disturbs them alike."""
    turns = TURNS // 3 if quick else TURNS
    delayed = {"eta": datetime.now(UTC)}
    cases: list[tuple[Any, ...]] = [("no-op tasks", pool, target, {}) for pool, target in TARGETS.items()]
    for what, pool, (rate, cpu), options in [*cases, ("delayed no-op tasks", "threads", DELAYED, delayed)]:
        with running(pool, FILLED, **options) as workers:
            found: dict[str, list[Turn]] = {kind: [] for kind in workers}
            for _ in range(turns):
                for kind, worker in workers.items():
                    found[kind].append(worker.turn())
        per_s = {kind: median(turn.tasks / turn.took_s for turn in those) for kind, those in found.items()}
        redis_us = {kind: redis_us_of(those) for kind, those in found.items()}
        note = f"{turns} turns of {TURN_S} s, Celery's default concurrency"
        yield Figure(f"{what}, {pool}, rate / stock", per_s[TAKE] / per_s[STOCK], "", rate, True, note)
        yield Figure(f"{what}, {pool}, CPU time of Redis / stock", redis_us[TAKE] / redis_us[STOCK], "", cpu)
        for kind in found:
            yield Figure(f"{what}, {pool}, {kind}", per_s[kind], "/s")
            yield Figure(f"{what}, {pool}, {kind}, CPU time of Redis", redis_us[kind], "µs/task")
    yield from _latency(60 if quick else 120)


def redis_us_of(turns: Sequence[Turn]) -> float:
    """Returns the CPU time of Redis for a task, in µs."""
    return sum(turn.redis_s for turn in turns) / sum(turn.tasks for turn in turns) * 1e6


def _latency(count: int) -> Iterator[Figure]:
    """Sends messages one by one to idle workers of each kind in turn."""
    message = json.loads(template())
    with running("threads", WARM) as workers:
        late_s: dict[str, list[float]] = {kind: [] for kind in workers}
        for _ in range(count):
            for kind, worker in workers.items():
                sleep(random.uniform(*BETWEEN_S))
                late_s[kind].append(worker.late_s(message))
    yield Figure("latency of an idle worker / stock", median(late_s[TAKE]) / median(late_s[STOCK]), "", 1.0)
    for kind, found in late_s.items():
        note = f"LPUSH to task start, {count} messages; 95 %: {quantiles(found, n=20)[18] * 1000:.2f} ms"
        yield Figure(f"latency of an idle worker, {kind}, median", median(found) * 1000, "ms", note=note)


def template(**options: Any) -> str:
    """Returns a message of the task as stock Celery publishes it, with ``TASK_ID`` as each of its ids."""
    with PrivateRedis() as server:
        make_app(server.url).tasks[TASK].apply_async((0.0,), task_id=TASK_ID, **options)
        message = json.loads(str(server.client().rpop(QUEUE)))
    message["properties"]["delivery_tag"] = TASK_ID
    return json.dumps(message)


def copies(message: str, count: int) -> Iterator[list[str]]:
    """Yields pages of messages: copies of a template, each with an id of its own."""
    for start in range(0, count, PUSHED):
        yield [message.replace(TASK_ID, str(uuid4())) for _ in range(min(PUSHED, count - start))]


def with_due(message: dict[str, Any], due: float) -> str:
    """Returns a message with an id of its own whose task has this argument."""
    args, *rest = json.loads(base64.b64decode(message["body"]))
    args[0] = due
    body = base64.b64encode(json.dumps([args, *rest]).encode()).decode()
    return json.dumps({**message, "body": body}).replace(TASK_ID, str(uuid4()))
