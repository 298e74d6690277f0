"""How late messages are when the leading transfer worker is killed, and what its deputies cost until then."""

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import Any
from uuid import uuid4

import psutil
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from kombu_delayq.store.types import Offer
from tests.bench.targets.load import make_store
from tests.bench.targets.report import Figure
from tests.support.conditions import until
from tests.support.servers.monitor import Monitor
from tests.support.workers.standalone import lease_holder, start_standalone

KILLS, QUICK_KILLS = 20, 3
#: A leader and two deputies.
WORKERS = 3
#: Messages a second, and number of queues: while leaders are killed, and the high load.
RATE, HIGH_RATE, HIGH_QUEUES = 40, 1000, 300
#: Bounds of the random delays, in s.
DELAY_S = 0.05, 3.0
#: Between a kill and the next, once another worker leads: random, so that kills meet any moment of a poll, in s.
PAUSE_S = 0.5, 1.5
#: How long a deputy's commands and CPU are measured, in s.
COST_S, QUICK_COST_S = 10.0, 5.0
LATEST_MS, COMMANDS_PER_S = 150, 25


class Load(Thread):
    """Publishes messages with random due times, and notes how late each arrives.

    Args:
        server: Private Redis.
        form: Form of backup.
        rate: Messages a second.
        queues: Number of queues.

    Attributes:
        late_ms: How late messages arrived, in ms, by the clock of this machine, which is Redis's.
    """

    def __init__(self, server: PrivateRedis, form: str, rate: float, queues: int) -> None:
        super().__init__(daemon=True)
        self.late_ms: list[float] = []
        self._store = make_store(redis.Redis(port=server.port), form)
        self._consumer: Any = server.client()
        self._queues = [f"queue{n}" for n in range(queues)]
        self._rate = rate
        self._sent = 0
        self._stopping = Event()

    def run(self) -> None:
        """Publishes until it is stopped."""
        at = monotonic()
        while not self._stopping.wait(max(at - monotonic(), 0)):
            due_ms = (time() + random.uniform(*DELAY_S)) * 1000
            body = json.dumps({"due_ms": due_ms})
            self._sent += 1
            self._store.delivery.offer(random.choice(self._queues), Offer(str(uuid4()), repr(due_ms), 0, body))
            at += random.expovariate(self._rate)

    def consume(self) -> None:
        """Takes messages until all have arrived."""
        while not self._stopping.is_set() or len(self.late_ms) < self._sent:
            if taken := self._consumer.brpop(self._queues, 1):
                self.late_ms.append(time() * 1000 - json.loads(taken[1])["due_ms"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Publishes and consumes meanwhile. Returns when all messages have arrived."""
        consumer = Thread(target=self.consume, daemon=True)
        for thread in (self, consumer):
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self.join()
            consumer.join(60)
        if len(self.late_ms) != self._sent:
            raise RuntimeError(f"{len(self.late_ms)} of {self._sent} messages arrived")


class Fleet:
    """Transfer workers, each a process."""

    def __init__(self, server: PrivateRedis, form: str) -> None:
        self._server, self._form = server, form
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def fill(self) -> None:
        """Starts workers until there are as many as are wanted. Returns when all hold leases."""
        while len(self._processes) < WORKERS:
            process = start_standalone(self._server, backup=self._form)
            self._processes[process.pid] = process
        until(lambda: set(self.pids()) == set(self._processes), 30, "all hold leases")

    def pids(self) -> list[int | None]:
        """Returns the process ids of the leader and its deputies."""
        return [lease_holder(self._server, rank) for rank in (1, 2, 3)]

    def kill_leader(self) -> None:
        """SIGKILL to the leader. Returns when another worker leads, and so has given back its deputy's lease."""
        process = self._processes.pop(self.pids()[0] or 0)
        process.kill()
        process.wait()
        until(lambda: self.pids()[0] in self._processes, 30, "another worker leads")

    def close(self) -> None:
        """Ends all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Kills leaders while messages are due, then lets a leader work and counts what its deputies do."""
    for form in BACKUPS:
        yield from _kills(server, form, QUICK_KILLS if quick else KILLS)
    for form in BACKUPS:
        for rate, queues in ((0, 1), (RATE, 1), (HIGH_RATE, HIGH_QUEUES)):
            yield from _cost(server, form, rate, queues, QUICK_COST_S if quick else COST_S)


@contextmanager
def _fleet(server: PrivateRedis, form: str) -> Iterator[Fleet]:
    server.client().flushall()
    fleet = Fleet(server, form)
    try:
        fleet.fill()
        yield fleet
    finally:
        fleet.close()


def _kills(server: PrivateRedis, form: str, kills: int) -> Iterator[Figure]:
    load = Load(server, form, RATE, 1)
    worst_ms = []
    with _fleet(server, form) as fleet, load.running():
        for _ in range(kills):
            sleep(random.uniform(*PAUSE_S))
            before = len(load.late_ms)
            fleet.kill_leader()
            fleet.fill()
            worst_ms.append(max(load.late_ms[before:]))
    note = f"{len(load.late_ms):,} messages; of each kill {[round(each) for each in worst_ms]}"
    note += f"; median of all messages {median(load.late_ms):.1f} ms"
    yield Figure(
        f"leader killed {kills} times, {form}, {RATE} messages/s: latest", max(worst_ms), "ms", LATEST_MS, note=note
    )


def _cost(server: PrivateRedis, form: str, rate: float, queues: int, for_s: float) -> Iterator[Figure]:
    load = Load(server, form, rate or 1, queues)
    with _fleet(server, form) as fleet, Monitor(server) as monitor, ExitStack() as loaded:
        if rate:
            loaded.enter_context(load.running())
            sleep(DELAY_S[1] + 1)
        pids = fleet.pids()
        processes = [psutil.Process(pid) for pid in pids]
        before_s = [sum(process.cpu_times()[:2]) for process in processes]
        commands = monitor.per_second(list(map(str, pids)), for_s)
        shares = [
            100 * (sum(process.cpu_times()[:2]) - took_s) / for_s
            for process, took_s in zip(processes, before_s, strict=True)
        ]
        sent = [commands[str(pid)] for pid in pids]
    what = f"{rate:,} messages/s in {queues} queue{'s' if queues > 1 else ''}" if rate else "idle"
    note = f"leader {sent[0]:.1f}/s, {shares[0]:.2f} % of a core; deputies {sent[1]:.1f} and {sent[2]:.1f}/s, "
    note += f"{shares[1]:.2f} and {shares[2]:.2f} %"
    yield Figure(f"commands of a deputy, {form}, {what}", max(sent[1:]), "/s", COMMANDS_PER_S, note=note)
    yield Figure(f"CPU of a deputy, {form}, {what}", max(shares[1:]), "%")
