"""Celery on Redis: stock, and with kombu-delayq."""

from kombu import Producer

from tests.bench.contender import Contender
from tests.bench.everyone.commands import python, versions

PROGRAM = "tests.bench.contenders.celery_"


def _celery(name: str, backup: str = "") -> Contender:
    return Contender(
        name=name,
        versions=lambda: versions(*(["kombu-delayq"] if backup else []), "celery", "kombu", "redis"),
        producer=python(PROGRAM),
        worker=python("celery", "-A", PROGRAM, "worker", "--loglevel=ERROR"),
        mover=python("celery", "-A", PROGRAM, "delayq", "transfer", "--loglevel=error") if backup else None,
        consumers=python("tests.bench.contenders.forked", PROGRAM),
        alone=python("celery", "-A", PROGRAM, "worker", "--loglevel=ERROR", "--pool=threads"),
        alone_settings="`--pool=threads`, a thread a core",
        settings="`celery worker` with its defaults: prefork, a child a core",
        ways=("one", "bulk") if backup or hasattr(Producer, "batch") else ("one",),
        counts=bool(backup),
        quiet={"BENCH_QUIET": "1"},
        env={"BENCH_BACKUP": backup},
    )


HASH = _celery("kombu-delayq, hash", "hash")
LIST = _celery("kombu-delayq, list", "list")
STOCK = _celery("Celery")
