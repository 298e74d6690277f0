"""Everybody who is compared. Their programs are in ``tests.bench.contenders``, in the language of each."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

from kombu import Producer

from tests.bench.contender import Contender
from tests.bench.servers import PostgresServer, postgres_version
from tests.support.jvm import redisson

HERE = Path(__file__).parent / "contenders"
_PROGRAMS = "tests.bench.contenders"
_FORKED = f"{_PROGRAMS}.forked"


def _python(module: str, *arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", module, *arguments)


def _versions(*packages: str) -> dict[str, str]:
    return {each: version(each) for each in packages}


def _celery(name: str, layout: str = "", *, light: bool = False) -> Contender:
    program = f"{_PROGRAMS}.celery_"
    more = ", `fast_publish=True`, `compact`, `argsrepr_maxsize=50`" if light else ""
    return Contender(
        name=name,
        versions=partial(_versions, *(["kombu-delayq"] if layout else []), "celery", "kombu", "redis"),
        producer=_python(program),
        worker=_python("celery", "-A", program, "worker", "--loglevel=ERROR"),
        mover=_python("celery", "-A", program, "delayq", "transfer", "--loglevel=error") if layout else None,
        consumers=_python(_FORKED, program),
        alone=_python("celery", "-A", program, "worker", "--loglevel=ERROR", "--pool=threads"),
        settings=f"prefork, a child a core{more}. One process: `--pool=threads`, a thread a core",
        ways=("one", "bulk") if layout or hasattr(Producer, "batch") else ("one",),
        counts=bool(layout),
        env={"BENCH_LAYOUT": layout, "BENCH_LIGHT": "1" if light else ""},
    )


HASH = _celery("kombu-delayq", "hash")
#: With the settings that make publishing faster and messages compact. They are off by default.
LIGHT = _celery("kombu-delayq, light", "hash", light=True)
LIST = _celery("kombu-delayq, redisson", "redisson")
STOCK = _celery("Celery")

_BULLMQ = HERE / "bullmq"


def _node_package(package: str) -> Path:
    return _BULLMQ / "node_modules" / package / "package.json"


def _node_versions() -> dict[str, str]:
    found = {each: json.loads(_node_package(each).read_text())["version"] for each in ("bullmq", "ioredis")}
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    return {**found, "node": told.strip().removeprefix("v")}


def _no_bullmq() -> str | None:
    if shutil.which("node") is None:
        return "no node on the PATH"
    return None if _node_package("bullmq").is_file() else "not installed: npm ci has not run"


BULLMQ = Contender(
    name="BullMQ",
    versions=_node_versions,
    producer=("node", str(_BULLMQ / "producer.mjs")),
    worker=("node", str(_BULLMQ / "worker.mjs")),
    consumers=("node", str(_BULLMQ / "worker.mjs")),
    alone=("node", str(_BULLMQ / "worker.mjs"), "1", "50"),
    settings=(
        "a `Worker` with its defaults: one job at a time, and whenever it asks for one, the ids of up to 1,000 due "
        "jobs move; many idle workers share a process. One process: `concurrency: 50`"
    ),
    why_not=_no_bullmq,
)
DRAMATIQ = Contender(
    name="dramatiq",
    versions=partial(_versions, "dramatiq", "redis"),
    producer=_python(f"{_PROGRAMS}.dramatiq_"),
    worker=_python("dramatiq", f"{_PROGRAMS}.dramatiq_"),
    consumers=_python(_FORKED, f"{_PROGRAMS}.dramatiq_"),
    alone=_python("dramatiq", "--processes=1", f"{_PROGRAMS}.dramatiq_"),
    settings=(
        "a process a core, 8 threads each. Each process takes up to 8,000 delayed messages into its memory, whatever "
        "their order; the messages behind them wait until it has room. One process: `--processes 1`"
    ),
    ways=("one",),
)
RQ = Contender(
    name="RQ",
    versions=partial(_versions, "rq", "redis"),
    producer=_python(f"{_PROGRAMS}.rq_"),
    worker=_python("rq.cli", "worker", "--with-scheduler", "--quiet", "--config", f"{_PROGRAMS}.rq_"),
    mover=_python(f"{_PROGRAMS}.rq_", "move"),
    consumers=_python(_FORKED, f"{_PROGRAMS}.rq_"),
    alone=_python("rq.cli", "worker", "--worker-class=rq.SimpleWorker", "--quiet", "--config", f"{_PROGRAMS}.rq_"),
    settings=(
        "`rq worker --with-scheduler` forks for each job; its scheduler moves up to 1,000 jobs, then sleeps for 1 s. "
        "Due times are cut to whole seconds, so a job may begin up to 1 s early. One process: `SimpleWorker`"
    ),
)
HUEY = Contender(
    name="huey",
    versions=partial(_versions, "huey", "redis"),
    producer=_python(f"{_PROGRAMS}.huey_"),
    worker=_python("huey.bin.huey_consumer", "--quiet", f"{_PROGRAMS}.huey_.huey"),
    consumers=_python(_FORKED, f"{_PROGRAMS}.huey_"),
    alone=_python("huey.bin.huey_consumer", "--quiet", f"{_PROGRAMS}.huey_.huey"),
    settings=(
        "one worker thread, and a scheduler that looks once a second. A delayed task is put into the queue, and into "
        "the schedule by the worker that meets it there: a backlog that no worker has met is weighed, and runs, as a "
        "queue. A cancelled task stays where it is and is not run"
    ),
    ways=("one",),
    counts=False,
)


def _procrastinate_schema() -> str:
    from procrastinate.schema import SchemaManager

    return SchemaManager.get_schema()


PROCRASTINATE = Contender(
    name="procrastinate",
    versions=lambda: {**_versions("procrastinate", "psycopg"), "PostgreSQL": postgres_version()},
    producer=_python(f"{_PROGRAMS}.procrastinate_"),
    worker=_python("procrastinate", f"--app={_PROGRAMS}.procrastinate_.app", "--log-level=error", "worker"),
    consumers=_python(_FORKED, f"{_PROGRAMS}.procrastinate_"),
    alone=_python(
        "procrastinate", f"--app={_PROGRAMS}.procrastinate_.app", "--log-level=error", "worker", "--concurrency=10"
    ),
    settings=(
        "on PostgreSQL, one task at a time; it looks at what is due every 5 s. A job that has run or been cancelled "
        "stays in its table. PostgreSQL waits for the disk at each commit, and allows 100 connections, of which a "
        "worker opens 5. One process: `--concurrency=10`"
    ),
    server=lambda: PostgresServer(_procrastinate_schema),
    counts=False,
    most_consumers=19,
    why_not=lambda: None if postgres_version() else "PostgreSQL is not installed (Debian: apt install postgresql)",
)

_REDISSON = HERE / "redisson"
_CLASSES, _JARS = _REDISSON / "build" / "classes", _REDISSON / "build" / f"redisson-{redisson.VERSION}"


@cache
def _no_redisson() -> str | None:
    """Gets Redisson and compiles the programs. Says what is missing, or returns None."""
    reason = redisson.why_not()
    if reason is not None:
        return reason
    _CLASSES.mkdir(parents=True, exist_ok=True)
    try:
        redisson.compiled(redisson.jars(redisson.VERSION, _CLASSES.parent), _CLASSES, _REDISSON)
    except redisson.NoRedisson as error:
        return str(error)
    except subprocess.CalledProcessError:
        return "javac does not compile its programs, which are for Java 17"
    return None


def _redisson_versions() -> dict[str, str]:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', told)
    return {"redisson": redisson.VERSION, "java": found[1] if found else "unknown"}


def _java(*arguments: str) -> tuple[str, ...]:
    class_path = f"{_CLASSES}{os.pathsep}{_JARS}/*"
    return ("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path, "Bench", *arguments)


REDISSON = Contender(
    name="Redisson",
    versions=_redisson_versions,
    producer=_java("producer"),
    worker=_java("worker"),
    consumers=_java("worker"),
    mover=_java("mover"),
    alone=_java("worker", "8"),
    settings=(
        "an `RDelayedQueue` and a thread that takes from its `RBlockingQueue`; many idle threads share a client. Bulk: "
        "`offerAsync`, as an `RBatch` has no delayed queue. One process: eight threads"
    ),
    why_not=_no_redisson,
)
#: In the order of the table.
EVERYONE = (HASH, LIGHT, LIST, STOCK, BULLMQ, DRAMATIQ, RQ, HUEY, PROCRASTINATE, REDISSON)
