"""Tasks for ``proj.py`` that ask for rests of their keys, and one that dies; by ``include=["limit_tasks"]``."""

import os
import signal
from typing import Any

from proj import app, journal, note

from celery_ext import Backoff


def _backs_off(task: Any) -> int:
    note(task)
    runs = journal.incr(f"backs_off:{task.request.id}")
    if runs == 1:
        raise Backoff(0.3)
    return int(runs)


@app.task(bind=True, name="proj.backs_off")
def backs_off(self: Any) -> int:
    """Asks for a rest when it runs for the first time."""
    return _backs_off(self)


@app.task(bind=True, name="proj.backs_off_late", acks_late=True)
def backs_off_late(self: Any) -> int:
    """The same, acknowledged at its end."""
    return _backs_off(self)


@app.task(bind=True, name="proj.backs_off_retried", autoretry_for=(Exception,), max_retries=0)
def backs_off_retried(self: Any) -> int:
    """The same, where Celery retries on every exception, and would have none left."""
    return _backs_off(self)


@app.task(bind=True, name="proj.die_early")
def die_early(self: Any) -> None:
    """Ends its pool process, and was acknowledged before."""
    note(self)
    os.kill(os.getpid(), signal.SIGKILL)
