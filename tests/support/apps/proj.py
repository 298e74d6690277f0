"""An ordinary Celery app, as its owner would have written it. It does not know kombu-delayq.

Its settings come from the environment, as JSON in PROJ_CONF, so that a test may start workers with its own.
"""

import json
import os
import signal
import threading
import time
from typing import Any

import redis
from celery import Celery
from celery.app.task import Context
from celery.exceptions import Reject

app = Celery("proj")
app.conf.update(json.loads(os.environ.get("PROJ_CONF", "{}")))
journal = redis.Redis(port=int(os.environ.get("PROJ_JOURNAL_PORT", "6379")), db=15, decode_responses=True)


def note(task: Any, **what: Any) -> None:
    """Writes down that a task runs: id, time, process, retries, the queue it came from, and what the task adds."""
    request = task.request
    journal.rpush(
        "runs",
        json.dumps(
            {
                "name": task.name.rpartition(".")[2],
                "id": request.id,
                "at": time.time(),
                "pid": os.getpid(),
                "retries": request.retries,
                "eta": request.eta,
                "queue": (request.delivery_info or {}).get("routing_key"),
                "redelivered": (request.delivery_info or {}).get("redelivered"),
                "deaths": (request.properties or {}).get("x-delivery-count"),
                **what,
            },
            default=str,
        ),
    )


@app.task(bind=True)
def record(self: Any, value: Any = None) -> Any:
    """Notes that it ran; returns its argument."""
    note(self, value=value)
    return value


@app.task(bind=True)
def see(self: Any, *_: Any) -> None:
    """Notes all that its request says."""
    names = [name for name, value in vars(Context).items() if not name.startswith("_") and not callable(value)]
    note(self, request={name: getattr(self.request, name) for name in names if name not in ("children", "task")})


@app.task(bind=True)
def add(self: Any, *numbers: float) -> float:
    """Notes that it ran; returns a sum, also of one list."""
    total = sum(numbers[0] if len(numbers) == 1 and isinstance(numbers[0], list) else numbers)
    note(self, value=total)
    return total


@app.task(bind=True)
def busy(self: Any, seconds: float, value: Any = None) -> Any:
    """Notes that it ran, then takes its time."""
    note(self, value=value)
    time.sleep(seconds)
    return value


def _look(task: Any, seconds: float, check: bool) -> Any:
    from celery_ext import cancelled, check_cancelled

    cancelled()
    note(task)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if check:
            check_cancelled()
        elif why := cancelled():
            return why
        time.sleep(0.02)
    return "end"


@app.task(bind=True)
def look(self: Any, seconds: float, check: bool = True) -> Any:
    """Looks for some time whether it is to stop. Ends with an error then, or without ``check`` returns the reason."""
    return _look(self, seconds, check)


@app.task(bind=True)
def look_inside(self: Any, seconds: float) -> Any:
    """Lets another task look, which it calls as a function."""
    note(self)
    return look(seconds)


@app.task(bind=True, acks_late=True)
def late_look(self: Any, seconds: float, check: bool = True) -> Any:
    """Does what ``look`` does, and is acknowledged at its end. When it comes again it ends at once."""
    return _look(self, 0 if self.request.delivery_info["redelivered"] else seconds, check)


@app.task(bind=True, max_retries=5)
def flaky(self: Any, failures: int, countdown: float = 1.0) -> int:
    """Fails a number of times, with a retry after ``countdown`` s, and then succeeds."""
    note(self)
    if self.request.retries < failures:
        raise self.retry(countdown=countdown, exc=RuntimeError("not yet"))
    return int(self.request.retries)


@app.task(bind=True, acks_late=True)
def late_acked(self: Any, seconds: float = 0.0, value: Any = None) -> Any:
    """Notes that it ran, then takes its time. Acknowledged only at its end."""
    note(self, value=value)
    time.sleep(seconds)
    return value


@app.task(bind=True, acks_late=True)
def hang_once(self: Any, value: Any = None) -> None:
    """Takes a minute when it comes for the first time. Acknowledged only at its end."""
    note(self, value=value)
    if not self.request.delivery_info["redelivered"]:
        time.sleep(60)


@app.task(bind=True, acks_late=True)
def poison(self: Any, deaths: int) -> None:
    """Kills the process that it runs in, as often as given."""
    note(self)
    if (self.request.properties.get("x-delivery-count") or 0) < deaths:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True, acks_late=True)
def reject_once(self: Any, requeue: bool) -> None:
    """Rejects its message when it comes for the first time."""
    note(self)
    if not self.request.delivery_info["redelivered"]:
        raise Reject("once", requeue=requeue)


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def die_once(self: Any) -> None:
    """Ends its pool process when it comes for the first time."""
    note(self)
    if not self.request.delivery_info["redelivered"]:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True)
def threads(self: Any) -> None:
    """Notes the threads of the process that it runs in."""
    note(self, threads=[thread.name for thread in threading.enumerate()])


@app.task(bind=True)
def receive(self: Any, queue: str) -> None:
    """Notes that it ran, consumes one message of a queue, and notes it with the threads of the process."""
    note(self)
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as waiting:
        message = waiting.get(timeout=20)
        message.ack()
        note(self, value=message.payload, threads=[thread.name for thread in threading.enumerate()])
