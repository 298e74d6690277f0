"""Tasks of every outcome for ``proj.py``, which imports this by the setting ``include=["stock_tasks"]``."""

import os
import signal
import time
from typing import Any

from celery.exceptions import Ignore, Reject
from proj import app, journal, note


@app.task(bind=True, name="proj.gated")
def gated(self: Any, gate: str, value: Any = None) -> Any:
    """Notes that it runs, and waits until the test opens its gate."""
    note(self, value=value)
    _pass(gate)
    return value


@app.task(bind=True, name="proj.gated_late", acks_late=True)
def gated_late(self: Any, gate: str, value: Any = None) -> Any:
    """Notes that it runs, and waits until the test opens its gate. Acknowledged at its end."""
    note(self, value=value)
    _pass(gate)
    note(self, passed=value)
    return value


@app.task(bind=True, name="proj.rare", rate_limit="1/h")
def rare(self: Any, value: Any = None) -> None:
    """Runs once an hour at most, in a worker."""
    note(self, value=value)


@app.task(bind=True, name="proj.fail", acks_late=True)
def fail(self: Any) -> None:
    """Fails, and is acknowledged then."""
    note(self)
    raise LookupError("no such thing")


@app.task(bind=True, name="proj.fail_unacked", acks_late=True, acks_on_failure_or_timeout=False)
def fail_unacked(self: Any) -> None:
    """Fails, and is rejected then."""
    note(self)
    raise LookupError("no such thing")


@app.task(bind=True, name="proj.ignored", acks_late=True)
def ignored(self: Any) -> None:
    """Ends without a result."""
    note(self)
    raise Ignore


@app.task(bind=True, name="proj.requeued", acks_late=True)
def requeued(self: Any) -> None:
    """Goes back to its queue when it comes for the first time."""
    note(self)
    if not self.request.delivery_info["redelivered"]:
        raise Reject("once", requeue=True)


@app.task(bind=True, name="proj.dropped", acks_late=True)
def dropped(self: Any) -> None:
    """Is rejected for good."""
    note(self)
    raise Reject("for good", requeue=False)


@app.task(bind=True, name="proj.again", acks_late=True, max_retries=1)
def again(self: Any) -> None:
    """Is retried once, at once."""
    note(self)
    if not self.request.retries:
        raise self.retry(countdown=0)


@app.task(bind=True, name="proj.too_long", acks_late=True, time_limit=1)
def too_long(self: Any) -> None:
    """Is ended by its time limit, and acknowledged then."""
    note(self)
    time.sleep(60)


@app.task(bind=True, name="proj.too_long_unacked", acks_late=True, time_limit=1, acks_on_failure_or_timeout=False)
def too_long_unacked(self: Any) -> None:
    """Is ended by its time limit when it comes for the first time."""
    note(self)
    if not self.request.delivery_info["redelivered"]:
        time.sleep(60)


@app.task(bind=True, name="proj.softly", acks_late=True, soft_time_limit=1)
def softly(self: Any) -> None:
    """Fails by its soft time limit, and is acknowledged then."""
    note(self)
    time.sleep(60)


@app.task(bind=True, name="proj.die", acks_late=True)
def die(self: Any) -> None:
    """Ends its pool process, and is acknowledged then."""
    note(self)
    os.kill(os.getpid(), signal.SIGKILL)


def _pass(gate: str) -> None:
    while not journal.exists(gate):
        time.sleep(0.02)
