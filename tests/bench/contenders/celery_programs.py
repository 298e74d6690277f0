"""What the programs of Celery have in common, whatever the broker."""

import os
from datetime import UTC, datetime
from time import time
from typing import Any

from celery import Celery

#: What a worker imports when it starts.
FORKED_WITH = (
    *("celery.bin.worker", "celery.apps.worker", "celery.worker.consumer", "celery.worker.components"),
    *("celery.concurrency.solo", "celery.worker.strategy", "celery.app.trace"),
)
#: Why a message cannot be taken back.
REVOKED = "cannot: a revoke is kept by the workers that hear it, and the message stays"


def when(due: float) -> dict[str, Any]:
    """Returns the options of a call: an eta unless the task is due."""
    return {"eta": datetime.fromtimestamp(due, UTC)} if due > time() else {}


def consume(app: Celery, *options: str) -> None:
    """Runs a worker.

    Without children, for only its consumer talks to the broker while nothing happens; and it does not ask all others
    for their state when it starts, which takes long where a hundred start at once.
    """
    name = f"--hostname={os.getpid()}@bench"
    app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", name, "--without-mingle", *options])
