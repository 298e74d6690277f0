"""How many small tasks a second a worker process runs, and how soon an idle one begins a task, beside others."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import click
import psutil

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.journal import Journal
from tests.bench.targets.app import OURS
from tests.bench.targets.report import Figure, heading, machine
from tests.bench.workers import THREADS
from tests.support.conditions import until

#: Tasks that wait when a worker starts; tasks begun before the watch, and those that are left at its end.
FILLED, WARM, LEFT = 6_000, 500, 1_000
#: Tasks that are sent to the worker one by one, when it has nothing else to do.
SENT = 100
LATEST = SENT * 99 // 100 - 1
#: Whether this system can bind a process to a core; macOS cannot.
BINDS = hasattr(psutil.Process, "cpu_affinity")
#: Tasks that a worker holds when it is killed, at least, and how long they may take to run again, in s.
HELD, RETURN_S = 2, 400
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, eq=False)
class Contender:
    """A worker.

    Attributes:
        name: Its name in the table.
        package: What has to be installed.
        app: Module of its app, in ``tests.bench.workers``.
        command: Arguments of ``python -m`` that start one process of it.
        promise: What it promises of a task whose worker is killed.
        env: Further environment variables.
        is_bound: Whether it runs on one core, as with ``taskset``.
    """

    name: str
    package: str
    app: str
    command: Sequence[str]
    promise: str = "at least once"
    env: Mapping[str, str] = field(default_factory=dict)
    is_bound: bool = False


def _celery(pool: str) -> list[str]:
    return ["celery", "-A", "tests.bench.workers.celery_", "worker", "-l", "ERROR", "-P", pool, "-c", str(THREADS)]


_ARDIQ = ["ardiq", "run", "-q", "tests.bench.workers.ardiq_:app"]
_BLITZQ = ["blitzq", "worker", "tests.bench.workers.blitzq_:app", "-c", str(THREADS), "--threads", str(THREADS)]
_ASYNC, _OURS = {"BENCH_ASYNC": "1"}, {"BENCH_TRANSPORT": OURS}
CONTENDERS = (
    Contender("kombu-delayq, threads", "celery", "celery_", _celery("threads"), env=_OURS),
    Contender("kombu-delayq, threads, one core", "celery", "celery_", _celery("threads"), env=_OURS, is_bound=True),
    Contender("kombu-delayq, solo", "celery", "celery_", _celery("solo"), env=_OURS),
    Contender("Celery, threads", "celery", "celery_", _celery("threads"), "at least once, but for what it just takes"),
    Contender("Celery, solo", "celery", "celery_", _celery("solo"), "at least once, but for what it just takes"),
    Contender("ArdiQ, sync", "ardiq", "ardiq_", _ARDIQ),
    Contender("ArdiQ, async", "ardiq", "ardiq_", _ARDIQ, env=_ASYNC),
    Contender("BlitzQ, sync", "blitzq", "blitzq_", _BLITZQ),
    Contender("BlitzQ, async", "blitzq", "blitzq_", _BLITZQ, env=_ASYNC),
    Contender(
        "dramatiq",
        "dramatiq",
        "dramatiq_",
        ["dramatiq", "tests.bench.workers.dramatiq_", "-p", "1", "-t", str(THREADS)],
    ),
    Contender(
        "potatoq",
        "potatoq",
        "potatoq_",
        ["potatoq", "-A", "tests.bench.workers.potatoq_:app", "worker", "--pool", "threads", "-c", str(THREADS)],
    ),
)
NAMES = [contender.name for contender in CONTENDERS]


@dataclass(frozen=True)
class Run:
    """What was seen of a worker.

    Attributes:
        per_s: Tasks a second.
        worker_us: CPU time of the worker for a task, in µs.
        redis_us: CPU time of Redis for a task, in µs.
        rss_mb: Memory of the worker, in MB.
        late_ms: From the call that enqueues a task until an idle worker begins it, in ms: one of each task, in order.
    """

    per_s: float
    worker_us: float
    redis_us: float
    rss_mb: float
    late_ms: Sequence[float] = ()


@click.command()
@click.option("--quick", is_flag=True, help="One round instead of three.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Only this worker; may be repeated.")
@click.option("--kills", default=0, help="Only kill a worker so often, and print how soon what it held runs again.")
def main(quick: bool, only: tuple[str, ...], kills: int) -> None:
    """Prints what one worker process of each task queue that is installed takes for a task that does nothing."""
    chosen = [one for one in CONTENDERS if _can_run(one) and (not only or one.name in only)]
    click.echo(", ".join(f"{name} {value}" for name, value in machine().items()))
    click.echo(f"\n{heading()}")
    for figure in returns(chosen, kills) if kills else measure(chosen, 1 if quick else 3):
        click.echo(f"{figure.line()}  {figure.note}".rstrip())


def returns(contenders: Sequence[Contender], kills: int) -> Iterator[Figure]:
    """Kills workers that hold tasks, while another one lives."""
    for contender in contenders:
        took_s = [_return_s(contender) for _ in range(kills)]
        note = f"{contender.package} {_version(contender.package)}; {kills} kills"
        yield Figure(f"kill to run again, {contender.name}, median", median(took_s), "s", note=note)
        yield Figure(f"kill to run again, {contender.name}, longest", max(took_s), "s")


def measure(contenders: Sequence[Contender], rounds: int) -> Iterator[Figure]:
    """Runs the workers in turns, so that a busy machine disturbs all alike."""
    found: dict[Contender, list[Run]] = {one: [] for one in contenders}
    for _ in range(rounds):
        for contender in found:
            found[contender].append(_run(contender))
    for contender, runs in found.items():
        note = f"{contender.package} {_version(contender.package)}; {contender.promise}"

        def of(value: Callable[[Run], float], runs: list[Run] = runs) -> float:
            return median(map(value, runs))

        yield Figure(f"worker, {contender.name}", of(lambda run: run.per_s), "/s", note=note)
        yield Figure(f"worker, {contender.name}, CPU time", of(lambda run: run.worker_us), "µs/task")
        yield Figure(f"worker, {contender.name}, CPU time of Redis", of(lambda run: run.redis_us), "µs/task")
        yield Figure(f"worker, {contender.name}, memory", of(lambda run: run.rss_mb), "MB")
        yield Figure(f"worker, {contender.name}, latency when idle, median", of(lambda run: median(run.late_ms)), "ms")
        yield Figure(f"worker, {contender.name}, latency when idle, 99 %", of(lambda run: run.late_ms[LATEST]), "ms")


def _run(contender: Contender) -> Run:
    with TemporaryDirectory(prefix="delayq-bench-") as folder, PrivateRedis() as server:
        journal = Journal(Path(folder) / "journal")
        enqueue = partial(_enqueue, contender, server)
        enqueue("fill", FILLED)
        with _worker(contender, server, journal) as worker:
            run = _watched(worker, psutil.Process(server.pid), journal)
            until(lambda: journal.count() == FILLED, 60, "the worker has run all tasks")
            enqueue("trickle", SENT)
            until(lambda: journal.count() == FILLED + SENT, 60, "the worker has run the tasks that were sent alone")
            return replace(run, late_ms=sorted(late * 1000 for late in journal.late_s()[FILLED:]))


def _return_s(contender: Contender) -> float:
    """Returns how long after the kill of a worker another one has run all that it held, in s."""
    with TemporaryDirectory(prefix="delayq-bench-") as folder, PrivateRedis() as server:
        held, ran = Journal(Path(folder) / "held"), Journal(Path(folder) / "ran")
        with ExitStack() as opened:
            with _worker(contender, server, held, BENCH_HOLDS="1"):
                sent = HELD
                _enqueue(contender, server, "trickle", sent)
                until(lambda: held.count() >= HELD, 60, "the worker that dies holds tasks")
                opened.enter_context(_worker(contender, server, ran))
                while not ran.count():  # some of these go to the worker that dies
                    _enqueue(contender, server, "trickle", 1)
                    sent += 1
            killed = monotonic()
            until(lambda: ran.count() >= sent, RETURN_S, "what it held has run again")
            return monotonic() - killed


def _enqueue(contender: Contender, server: PrivateRedis, how: str, count: int) -> None:
    # Without the interpreter's own end, in which the threads of ArdiQ's core may crash.
    names = f"from tests.bench.workers import {how}, {contender.app} as app"
    program = f"{names}; {how}(app.send, {count}); import os; os._exit(0)"
    env = {**os.environ, "BENCH_SERVER": server.url, **contender.env}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, check=True)


@contextmanager
def _worker(contender: Contender, server: PrivateRedis, journal: Journal, **more: str) -> Iterator[psutil.Popen]:
    """Runs a worker, and kills it at the end."""
    env = {"BENCH_SERVER": server.url, "BENCH_JOURNAL": str(journal.path), "PYTHONWARNINGS": "ignore", **more}
    with psutil.Popen(
        [sys.executable, "-m", *contender.command],
        cwd=ROOT,
        env={**os.environ, **env, **contender.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as worker:
        if contender.is_bound:
            worker.cpu_affinity(worker.cpu_affinity()[:1])
        try:
            yield worker
        finally:
            for process in (*worker.children(recursive=True), worker):
                process.kill()


def _watched(worker: Any, redis: psutil.Process, journal: Journal) -> Run:
    until(lambda: journal.count() >= WARM, 60, "the worker runs tasks")
    begun, first, worker_s, redis_s = monotonic(), journal.count(), _cpu_s(worker), _cpu_s(redis)
    until(lambda: journal.count() >= FILLED - LEFT, 120, "the worker has run most tasks")
    took_s, tasks = monotonic() - begun, journal.count() - first
    rss = sum(process.memory_info().rss for process in (worker, *worker.children(recursive=True)))
    per_task = 1e6 / tasks
    return Run(tasks / took_s, (_cpu_s(worker) - worker_s) * per_task, (_cpu_s(redis) - redis_s) * per_task, rss / 1e6)


def _cpu_s(process: psutil.Process) -> float:
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def _can_run(contender: Contender) -> bool:
    return _version(contender.package) is not None and (BINDS or not contender.is_bound)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.workers")
