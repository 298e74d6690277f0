"""When the running tasks of a worker are to stop, because the worker was told to stop."""

from collections.abc import Callable
from functools import partial
from math import inf
from mmap import mmap
from time import monotonic
from typing import Any

from celery.signals import worker_shutting_down

#: Setting of an app: how long running tasks may go on after SIGTERM, in s. None for as long as they like.
SETTING = "delayq_shutdown_grace"
#: Part of ``worker_soft_shutdown_timeout`` after which tasks are to stop: the rest is for their last steps.
SOFT_SHARE = 0.8

#: When tasks are to stop, in s of ``monotonic``; 0 while their worker goes on. The processes of a pool that forks share
#: it with their worker, which writes it while it handles a signal; each worker has one of its own.
_stops_at = memoryview(bytearray(8)).cast("d")
_grace_s = inf


def has_to_stop() -> bool:
    """Whether the running tasks of this process are to stop because of their worker."""
    return 0.0 < _stops_at[0] <= monotonic()


def watch_shutdown(worker: Any) -> Callable[[], None]:
    """Watches a worker. A stop sets the time by which its tasks have to end. The returned function ends the watch.

    Args:
        worker: Celery's ``WorkController``, before it starts.
    """
    global _grace_s, _stops_at
    grace_s = worker.app.conf.get(SETTING)
    _grace_s = inf if grace_s is None else float(grace_s)
    _stops_at = memoryview(mmap(-1, 8)).cast("d")
    worker_shutting_down.connect(_begin_warm, weak=False, dispatch_uid="delayq-shutdown-grace")
    waits = worker.wait_for_soft_shutdown
    worker.wait_for_soft_shutdown = partial(_wait, waits, worker.app.conf)
    return partial(setattr, worker, "wait_for_soft_shutdown", waits)


def _begin_warm(**_: Any) -> None:
    _stop_in(_grace_s)


def _wait(celerys: Callable[[], Any], conf: Any) -> Any:
    """Waits as Celery does, which tells nobody before that its soft shutdown begins."""
    _stop_in(min(_grace_s, SOFT_SHARE * (conf.worker_soft_shutdown_timeout or inf)))
    return celerys()


def _stop_in(grace_s: float) -> None:
    at = monotonic() + grace_s
    if grace_s != inf and not 0.0 < _stops_at[0] <= at:
        _stops_at[0] = at
