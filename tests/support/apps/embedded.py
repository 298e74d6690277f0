"""A program with Celery workers inside it, as users' tests have them. Of kombu-delayq it names the transport alone.

It prints JSON of what it saw. Its settings are in PROJ_CONF. Its argument names the function that it runs.
"""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from time import monotonic
from typing import Any

from celery import Celery
from celery.contrib.testing.tasks import ping  # noqa: F401  # which start_worker sends
from celery.contrib.testing.worker import start_worker

from tests.support.conditions import until

app = Celery("embedded")
app.conf.update(json.loads(os.environ["PROJ_CONF"]))
other = Celery("other", broker=app.conf.broker_url, backend=app.conf.result_backend, set_as_current=False)


@app.task
def add(x: int, y: int, z: int = 0) -> int:
    """Adds."""
    return x + y + z


@app.task(bind=True, delay_chain="4m,1h")
def notify(self: Any) -> None:
    """Fails each time."""
    raise self.retry(exc=ValueError("no answer"))


@other.task(name="other.late")
def late() -> None:
    """Does nothing, later."""


def inspected() -> dict[str, Any]:
    """Looks at a waiting task, revokes it, and makes a task fail."""
    report: dict[str, Any] = {}
    with start_worker(app, perform_ping_check=False) as worker:
        inspect = app.control.inspect(destination=[worker.hostname], timeout=30)
        eta = datetime.now(UTC) + timedelta(hours=1)
        sent = add.apply_async([1, 2], {"z": 3}, eta=eta)
        report["eta"] = eta.strftime("%Y-%m-%dT%H:%M:%S.%f") + "+00:00"
        report["id"] = sent.id
        report["scheduled"] = until(inspect.scheduled)[worker.hostname]
        sent.revoke()
        report["state"] = until(lambda: sent.state == "REVOKED")
        report["left"] = inspect.scheduled()[worker.hostname]
        notify.delay()
        report["retry"] = until(lambda: inspect.scheduled()[worker.hostname])
    return report


def with_other_transport() -> dict[str, Any]:
    """Does the same as ``inspected``, and then runs a worker of an app on stock Redis."""
    report = inspected()
    with start_worker(other, perform_ping_check=False) as worker:
        inspect = other.control.inspect(destination=[worker.hostname], timeout=30)
        late.apply_async(countdown=3600)
        [held] = until(lambda: inspect.scheduled()[worker.hostname])
        report["stock"] = {"host": held["request"]["hostname"] == worker.hostname, "sender": "send_task" in vars(other)}
        other.control.purge()
    return report


def forked() -> dict[str, Any]:
    """Makes a task fail in the pool of a worker that the program makes itself."""
    notify.delay()
    ready = Event()  # until then this thread does nothing: a child must not inherit a lock that it holds
    worker = app.WorkController(pool="prefork", concurrency=1, ready_callback=lambda consumer: ready.set())
    Thread(target=worker.start, daemon=True).start()
    ready.wait(60)
    inspect = app.control.inspect([worker.hostname], timeout=30)
    report = {"retry": until(lambda: (inspect.scheduled() or {}).get(worker.hostname))}
    worker.terminate()
    return report


def ended_idle() -> dict[str, Any]:
    """Runs a worker until it waits for messages, three times. Tells how long it took to end, in s."""
    redis = app.connection_for_read().default_channel.client

    def waits() -> bool:
        return any(each["cmd"] == "blmove" and "b" in each["flags"] for each in redis.client_list())

    report: dict[str, Any] = {"ended_s": []}
    for _ in range(3):
        with start_worker(app, perform_ping_check=False):
            until(waits)
            begun = monotonic()
        report["ended_s"].append(monotonic() - begun)
    return report


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
    sys.stdout.flush()
    os._exit(0)  # a thread of a pool must not keep the process alive
