"""Celery on Redis: stock, and with kombu-delayq."""

from kombu import Producer

from tests.bench.contender import Contender
from tests.bench.everyone.commands import python, versions

PROGRAM = "tests.bench.contenders.celery_"


def _celery(name: str, backup: str = "", *, light: bool = False) -> Contender:
    return Contender(
        name=name,
        versions=lambda: versions(*(["kombu-delayq"] if backup else []), "celery", "kombu", "redis"),
        producer=python(PROGRAM),
        worker=python("celery", "-A", PROGRAM, "worker", "--loglevel=ERROR"),
        mover=python("celery", "-A", PROGRAM, "delayq", "transfer", "--loglevel=error") if backup else None,
        consumers=python("tests.bench.contenders.forked", PROGRAM),
        alone=python("celery", "-A", PROGRAM, "worker", "--loglevel=ERROR", "--pool=threads"),
        alone_settings="`--pool=threads`, a thread a core",
        settings="`celery worker` with its defaults: prefork, a child a core"
        + (", `fast_publish=True`, `text_bodies`, `repr_maxsize=50`, `omit_defaults`" if light else ""),
        ways=("one", "bulk") if backup or hasattr(Producer, "batch") else ("one",),
        counts=bool(backup),
        quiet={"BENCH_QUIET": "1"},
        env={"BENCH_BACKUP": backup, "BENCH_LIGHT": "1" if light else ""},
    )


HASH = _celery("kombu-delayq, hash", "hash")
LIST = _celery("kombu-delayq, list", "list")
#: With the settings that make publishing faster and messages lighter. They are off by default.
LIGHT = _celery("kombu-delayq, light", "hash", light=True)
STOCK = _celery("Celery")
