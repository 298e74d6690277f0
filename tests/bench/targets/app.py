"""An ordinary Celery app with one task, which writes down how late it begins."""

import os
import time
from typing import Any

import redis
from celery import Celery

BROKER = "BENCH_BROKER"
TRANSPORT = "BENCH_TRANSPORT"
BACKUP = "BENCH_BACKUP"
OURS = "kombu_delayq.transport:Transport"


def make_app(broker_url: str, transport: str = "", form: str = "") -> Celery:
    """Makes the app; everything but the broker is at its default.

    Args:
        broker_url: A Redis database.
        transport: ``broker_transport``; empty for stock Celery.
        form: Transport option ``backup``; empty for the default.
    """
    app = Celery("bench", broker=broker_url, set_as_current=False)
    if transport:
        app.conf.broker_transport = transport
    if form:
        app.conf.broker_transport_options = {"backup": form}
    journal = journal_of(broker_url)

    @app.task(name="bench.arrive", shared=False)
    def arrive(due: float) -> None:
        late_s = time.time() - due
        journal.rpush("late_s", late_s)

    return app


def journal_of(broker_url: str) -> Any:
    """Returns a client of the database in which the tasks write, db 15 of the broker's server."""
    return redis.Redis.from_url(broker_url.rpartition("/")[0] + "/15", decode_responses=True)


if BROKER in os.environ:
    app = make_app(os.environ[BROKER], os.environ.get(TRANSPORT, ""), os.environ.get(BACKUP, ""))
