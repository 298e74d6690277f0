"""What arming many periodic entries costs, and whether each run comes once while workers and Redis are killed."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from statistics import quantiles
from time import perf_counter, process_time, sleep, time
from typing import Any, NamedTuple

import psutil
from celery import Celery
from celery.schedules import crontab
from redis import Redis

from celery_ext import install
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import BROKER, OURS
from tests.bench.targets.report import Figure
from tests.support.conditions import until
from tests.support.workers.periodic import Process

#: Variable with the URL of the Redis in which runs are noted, which nobody kills; and the list there.
NOTES, RUNS = "BENCH_NOTES", "bench:runs"
WORKERS, KILL_EVERY_S = 3, 5.0
#: Entries of the large schedule, and how often a process that has armed them looks.
ENTRIES, LOOKS = 10_000, 20
#: For so long after a kill of a worker, or after a restart of Redis, a run counts as near to it, in s.
NEAR_S, NEAR_RESTART_S = 1.0, 40.0
#: The latest run that is waited for is due so long before the end of the wait, in s.
LAST_S = 90.0


class Run(NamedTuple):
    """A run that has begun: the id of its task, when it was due and began, and whether a worker had died with it."""

    identity: str
    due: float
    begun: float
    redelivered: bool


def make_app(url: str) -> Celery:
    """Makes the app, with an entry each second."""
    app = Celery("ticks", broker=url, set_as_current=False)
    app.conf.update(broker_transport=OURS, task_acks_late=True, task_ignore_result=True, result_expires=None)
    app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 1.0}}
    notes = Redis.from_url(os.environ[NOTES])

    @app.task(bind=True, name="tick", shared=False)
    def tick(self: Any) -> None:
        request = self.request
        redelivered = bool(request.delivery_info["redelivered"])
        notes.rpush(
            RUNS, json.dumps([request.id, datetime.fromisoformat(request.eta).timestamp(), time(), redelivered])
        )

    install(app, periodic=True)
    return app


if NOTES in os.environ:
    app = make_app(os.environ[BROKER])


class Fleet:
    """Workers, of which each that is killed is started anew."""

    def __init__(self, broker: str, notes: str) -> None:
        self._environment = {**os.environ, BROKER: broker, NOTES: notes, "PYTHONWARNINGS": "ignore"}
        self._workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> psutil.Popen:
        return psutil.Popen(
            [*f"{sys.executable} -m celery -A tests.bench.targets.periodic worker -P solo -l ERROR".split()],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill_one(self) -> float:
        """Kills a worker at random, and starts another one. Returns when."""
        at = random.randrange(WORKERS)
        killed = time()
        self._end(self._workers[at])
        self._workers[at] = self._start()
        return killed

    def close(self) -> None:
        """Kills all."""
        for worker in self._workers:
            self._end(worker)

    @staticmethod
    def _end(worker: psutil.Popen) -> None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Arms 10,000 entries. Kills a worker of three each five seconds, and Redis twice, for ten minutes; quick: one."""
    yield from _many()
    seconds, restarts = (60.0, 1) if quick else (600.0, 2)
    notes: Any = server.client()
    with ExitStack() as opened:
        broker = opened.enter_context(PrivateRedis("--appendonly", "yes", "--appendfsync", "always"))
        fleet = Fleet(broker.url, server.url)
        opened.callback(fleet.close)
        until(lambda: notes.llen(RUNS) >= 3, 90, "the entry runs")
        begun = time()
        restart_at = [begun + seconds * (number + 1) / (restarts + 1) for number in range(restarts)]
        kills, restarted = [], []
        while time() < begun + seconds:
            sleep(KILL_EVERY_S)
            kills.append(fleet.kill_one())
            if restart_at and time() > restart_at[0]:
                restart_at.pop(0)
                broker.stop(signal.SIGKILL)
                restarted.append(time())
                broker.start()
        ended = time()
        until(lambda: max(run.due for run in _runs(notes)) > ended, LAST_S, "a run after the last kill")
        sleep(10)  # what a worker held that was killed last runs again
        runs = [run for run in _runs(notes) if run.due <= ended]
    yield from _figures(runs, kills, restarted)


def _many() -> Iterator[Figure]:
    """Lets a process arm many entries, as a worker does that takes over, and look at them afterwards."""
    entries = {
        f"entry {number}": {
            "task": "celery.accumulate",
            "schedule": crontab(minute=number % 60, hour=number % 24) if number % 2 else 300.0 + number % 3600,
            "args": (number,),
        }
        for number in range(ENTRIES)
    }
    with PrivateRedis() as server, ExitStack() as opened:
        Process(opened, server.url, "first", {}).step().arming.end()  # what is imported late has been by then
        begun, cpu_s = perf_counter(), process_time()
        process = Process(opened, server.url, "second", entries).step()
        took_s, cpu_s = perf_counter() - begun, process_time() - cpu_s
        looks_s = process_time()
        for _ in range(LOOKS):
            process.arming.step()
        look_ms = (process_time() - looks_s) / LOOKS * 1000
    yield Figure(f"periodic: {ENTRIES:,} entries are armed", took_s, "s", 2.0)
    yield Figure(f"periodic: {ENTRIES:,} entries are armed, CPU time", cpu_s, "s")
    yield Figure("periodic: a look each second, CPU time", look_ms, "ms", 10.0)


def _runs(notes: Any) -> list[Run]:
    return sorted((Run(*json.loads(text)) for text in notes.lrange(RUNS, 0, -1)), key=lambda run: run.due)


def _figures(runs: Sequence[Run], kills: Sequence[float], restarted: Sequence[float]) -> Iterator[Figure]:
    dues = sorted({round(run.due) for run in runs})
    missing = sum(later - before - 1 for before, later in pairwise(dues))
    first = [run for run in runs if not run.redelivered]
    doubled = len(first) - len({run.identity for run in first})
    again = len(runs) - len(first)
    note = f"{len(kills)} kills of a worker, {len(restarted)} of Redis; {again} runs again, as their worker died"
    yield Figure("periodic: runs", len(dues), note=note)
    yield Figure("periodic: missing", missing, "", 0)
    yield Figure("periodic: twice, and not because a worker died with it", doubled, "", 0)
    near_restart = [run for run in first if _is_near(run, restarted, NEAR_RESTART_S)]
    others = [run for run in first if not _is_near(run, restarted, NEAR_RESTART_S)]
    near_kill = [run for run in others if _is_near(run, kills, NEAR_S)]
    far = [run for run in others if not _is_near(run, kills, NEAR_S)]
    for what, found, most_ms in (
        ("no kill near", far, 50),
        (f"within {NEAR_S:g} s of a kill", near_kill, 300),
        ("after Redis was killed", near_restart, None),
    ):
        late_ms = [(run.begun - run.due) * 1000 for run in found]
        if len(late_ms) > 1:
            yield Figure(
                f"periodic: late, {what}, 99 %", quantiles(late_ms, n=100, method="inclusive")[98], "ms", most_ms
            )
            yield Figure(f"periodic: late, {what}, longest of {len(late_ms)}", max(late_ms), "ms")


def _is_near(run: Run, faults: Sequence[float], near_s: float) -> bool:
    return any(fault <= run.begun and run.due < fault + near_s for fault in faults)
