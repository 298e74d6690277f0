"""Task queues in Python with Redis, other than Celery: dramatiq, RQ, huey and arq."""

import json
import os
import subprocess
from pathlib import Path

from tests.bench.contender import Contender
from tests.bench.everyone.commands import python, versions

_PROGRAMS = "tests.bench.contenders"
_FORKED = f"{_PROGRAMS}.forked"

DRAMATIQ = Contender(
    name="dramatiq",
    versions=lambda: versions("dramatiq", "redis"),
    producer=python(f"{_PROGRAMS}.dramatiq_"),
    worker=python("dramatiq", f"{_PROGRAMS}.dramatiq_"),
    consumers=python(_FORKED, f"{_PROGRAMS}.dramatiq_"),
    alone=python("dramatiq", "--processes=1", f"{_PROGRAMS}.dramatiq_"),
    alone_settings="`--processes 1`, with 8 threads",
    settings=(
        "`dramatiq` with its defaults: a process a core, 8 threads each. Delayed messages are in a list of their own, "
        "from which each process takes up to 8,000 into its memory, whatever their order; the messages behind them "
        "wait until it has room. It looks at what is due at least once a second"
    ),
    ways=("one",),
)

RQ = Contender(
    name="RQ",
    versions=lambda: versions("rq", "redis"),
    producer=python(f"{_PROGRAMS}.rq_"),
    worker=python("rq.cli", "worker", "--with-scheduler", "--quiet", "--config", f"{_PROGRAMS}.rq_"),
    mover=python(f"{_PROGRAMS}.rq_", "move"),
    consumers=python(_FORKED, f"{_PROGRAMS}.rq_"),
    heavy=True,
    alone=python("rq.cli", "worker", "--worker-class=rq.SimpleWorker", "--quiet", "--config", f"{_PROGRAMS}.rq_"),
    alone_settings="`SimpleWorker`, which does not fork, and no scheduler",
    settings=(
        "`rq worker --with-scheduler --quiet`: forks for each job. Its scheduler moves up to 1,000 jobs, then sleeps "
        "for 1 s. Due times are cut to whole seconds, so that a job may begin up to 1 s early. Arguments are "
        "compressed. Bulk: `enqueue_at` with a pipeline"
    ),
)

HUEY = Contender(
    name="huey",
    versions=lambda: versions("huey", "redis"),
    producer=python(f"{_PROGRAMS}.huey_"),
    worker=python("huey.bin.huey_consumer", "--quiet", f"{_PROGRAMS}.huey_.huey"),
    consumers=python(_FORKED, f"{_PROGRAMS}.huey_"),
    alone=python("huey.bin.huey_consumer", "--quiet", f"{_PROGRAMS}.huey_.huey"),
    alone_settings="the same",
    settings=(
        "`huey_consumer --quiet` with its defaults: one worker thread and the scheduler, which looks once a second. "
        "A delayed task is put into the queue, and into the schedule by the worker that meets it there before it is "
        "due: a backlog that no worker has met is weighed, and runs, as a queue. A cancelled (revoked) task stays "
        "where it is and is not run"
    ),
    ways=("one",),
    counts=False,
)


def _arq_python() -> str:
    """Returns the interpreter that has arq, which wants a redis-py below 6."""
    return os.environ.get("BENCH_ARQ_PYTHON", str(Path(__file__).parents[3] / ".venv-bench-arq/bin/python"))


def _arq(*arguments: str) -> tuple[str, ...]:
    return (_arq_python(), "-m", *arguments)


def _arq_versions() -> dict[str, str]:
    code = "import json; from importlib.metadata import version as v; print(json.dumps({n: v(n) for n in %r}))"
    answer = subprocess.run([_arq_python(), "-c", code % ["arq", "redis"]], capture_output=True, check=True)
    found: dict[str, str] = json.loads(answer.stdout)
    return found


def _arq_missing() -> str | None:
    try:
        _arq_versions()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return "not installed: make bench does it"
    return None


ARQ = Contender(
    name="arq",
    versions=_arq_versions,
    producer=_arq(f"{_PROGRAMS}.arq_"),
    worker=_arq("arq", f"{_PROGRAMS}.arq_.WorkerSettings", "--custom-log-dict", f"{_PROGRAMS}.arq_.LOGGING"),
    consumers=_arq(_FORKED, f"{_PROGRAMS}.arq_"),
    alone=_arq("arq", f"{_PROGRAMS}.arq_.BusySettings", "--custom-log-dict", f"{_PROGRAMS}.arq_.LOGGING"),
    alone_settings="`poll_delay=0.01`, without which it takes 100 jobs each 0.5 s",
    settings=(
        "`arq` with its defaults, but only warnings in its log: one process, 10 jobs at once, looks every 0.5 s and "
        "takes up to 100 jobs then. Jobs are run where they wait"
    ),
    ways=("one",),
    counts=False,
    why_not=_arq_missing,
)
