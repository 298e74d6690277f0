"""An ordinary Celery app with tasks that write down when they begin."""

import json
import os
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import redis
from celery import Celery
from kombu import Queue

from tests.bench.journal import arrive as note

BROKER = "BENCH_BROKER"
TRANSPORT = "BENCH_TRANSPORT"
OPTIONS = "BENCH_OPTIONS"
QUEUES = "BENCH_QUEUES"
OURS = "kombu_delayq.transport:Transport"


def make_app(broker_url: str, transport: str = "", options: Mapping[str, Any] | None = None) -> Celery:
    """Makes the app; everything but the broker is at its default.

    Args:
        broker_url: A Redis database, or a cluster.
        transport: ``broker_transport``; empty for stock Celery.
        options: ``broker_transport_options``.
    """
    app = Celery("bench", broker=broker_url, set_as_current=False)
    if transport:
        app.conf.broker_transport = transport
    if options:
        app.conf.broker_transport_options = dict(options)

    @app.task(name="bench.arrive", shared=False)
    def arrive(due: float) -> None:
        late_s = time.time() - due
        journal_of(broker_url).rpush("late_s", late_s)

    @app.task(name="bench.begin", shared=False)
    def begin(due: float, pad: str = "") -> None:
        note(due)

    return app


@cache
def journal_of(broker_url: str) -> Any:
    """Returns a client of the database in which ``bench.arrive`` writes, db 15 of the broker's server."""
    return redis.Redis.from_url(broker_url.rpartition("/")[0] + "/15", decode_responses=True)


if BROKER in os.environ:
    app = make_app(os.environ[BROKER], os.environ.get(TRANSPORT, ""), json.loads(os.environ.get(OPTIONS, "{}")))
    if QUEUES in os.environ:
        app.conf.task_queues = [Queue(name) for name in os.environ[QUEUES].split(",")]


if __name__ == "__main__":
    # For a transport with messages of its own: enqueues this many, as any app does.
    for _ in range(int(sys.argv[1])):
        app.send_task("bench.begin", (0.0,))
