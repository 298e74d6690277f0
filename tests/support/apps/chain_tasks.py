"""Tasks with delay chains for ``proj.py``, which imports this by the setting ``include=["chain_tasks"]``.

With the setting ``without_install`` they are tasks as plain Celery has them.
"""

import os
import signal
import sys
import threading
import time
from typing import Any

from celery.exceptions import Ignore, Reject
from celery.signals import task_revoked
from proj import app, journal, note

from celery_ext import delay_chain_exhausted, install

if not app.conf.get("without_install"):
    install(app)

#: Steps that no test waits for; ``run_now`` ends them.
LONG = "4m,10m*2,1h"


class NotifyFailed(Exception):
    """The other side did not answer."""


class Unserializable(Exception):
    """An error that can be neither pickled nor shown."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __str__(self) -> str:
        raise TypeError("cannot be shown")


@app.task(bind=True, name="proj.notify", delay_chain=app.conf.get("chain") or LONG, autoretry_for=(NotifyFailed,))
def notify(self: Any, failures: int = 99, value: Any = None) -> int:
    """Fails a number of times; then returns how often it was retried."""
    note(self, value=value)
    if self.request.retries < failures:
        raise NotifyFailed(f"no answer {self.request.retries}")
    return int(self.request.retries)


@app.task(bind=True, name="proj.by_hand", delay_chain=LONG, dead_letter_queue="failed")
def by_hand(self: Any, exc: str | None = None, **retry: Any) -> None:
    """Retries by hand, with an error of its own or without."""
    note(self)
    raise self.retry(exc=NotifyFailed(exc) if exc else None, **retry)


@app.task(bind=True, name="proj.unserializable", delay_chain="1h", dead_letter_queue="failed")
def unserializable(self: Any) -> None:
    """Fails with an error that cannot be written down."""
    note(self)
    raise self.retry(exc=Unserializable())


@app.task(bind=True, name="proj.unchained", max_retries=2, default_retry_delay=3600, dead_letter_queue="failed")
def unchained(self: Any) -> None:
    """Has no chain, and is buried all the same."""
    note(self)
    raise self.retry(exc=NotifyFailed("no answer"))


@app.task(bind=True, name="proj.gated", delay_chain=LONG, acks_late=True)
def gated(self: Any) -> None:
    """Waits for an entry in the list ``fail ID`` of the journal, and then fails. Acknowledged only at its end."""
    note(self)
    journal.blpop(f"fail {self.request.id}", timeout=120)
    raise self.retry(exc=NotifyFailed("told to"))


@app.task(bind=True, name="proj.failed_with")
def failed_with(self: Any, *args: Any) -> None:
    """An error callback."""
    note(self, value=[str(arg) for arg in args])


@delay_chain_exhausted.connect(weak=False)
def note_exhausted(sender: Any, request: Any, chain: Any, exception: Any, **kwargs: Any) -> None:
    """Notes what the signal says."""
    note(sender, told="exhausted", chain=str(chain), exception=repr(exception) if exception else None)


@task_revoked.connect(weak=False)
def note_revoked(sender: Any, request: Any, **kwargs: Any) -> None:
    """Notes a task that was revoked."""
    sender.push_request(id=request.id)
    note(sender, told="revoked")
    sender.pop_request()


#: How a task that is buried after any final failure is declared.
DOOMED: Any = {"bind": True, "dead_letter_queue": "failed", "dead_letter_on": "failure"}


def end(how: str) -> str:
    """Ends a task in some way: at once, or after an entry came into a list of the journal, as in ``raise after go``."""
    how, _, gate = how.partition(" after ")
    if gate:
        journal.blpop(gate, timeout=120)
    if how == "raise":
        raise ValueError("no such order")
    if how == "ignore":
        raise Ignore
    if how == "reject":
        raise Reject("not mine", requeue=False)
    if how == "back off":
        from celery_ext import Backoff  # the version before has none, in a fleet that is upgraded

        raise Backoff(0.1)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    if how in ("hang", "hang softly"):
        time.sleep(30)
    return how


@app.task(name="proj.doomed", **DOOMED)
def doomed(self: Any, how: str) -> str:
    """Ends in the way that its argument names."""
    note(self, value=how)
    return end(how)


@app.task(name="proj.doomed_late", acks_late=True, **DOOMED)
def doomed_late(self: Any, how: str) -> str:
    """Is acknowledged at its end."""
    note(self, value=how)
    return end(how)


@app.task(name="proj.doomed_again", acks_late=True, reject_on_worker_lost=True, **DOOMED)
def doomed_again(self: Any, how: str) -> None:
    """Loses its process once, and fails when it comes again."""
    note(self, value=how)
    if not self.request.delivery_info["redelivered"]:
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("again")


@app.task(name="proj.doomed_chain", delay_chain="1h", autoretry_for=(NotifyFailed,), **DOOMED)
def doomed_chain(self: Any) -> None:
    """Fails first with an error that the chain retries, and then with another one."""
    note(self)
    if not self.request.retries:
        raise NotifyFailed("no answer")
    raise ValueError("no such order")


@app.task(bind=True, name="proj.dies_always", delay_chain="1h", dead_letter_queue="failed", retry_on_worker_lost=True)
def dies_always(self: Any) -> None:
    """Ends its pool process each time."""
    note(self)
    os.kill(os.getpid(), signal.SIGKILL)
