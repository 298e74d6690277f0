"""An ordinary Celery app with a task that writes down when it begins."""

import json
import os

from celery import Celery

from tests.bench.journal import arrive

BROKER = "BENCH_BROKER"
TRANSPORT = "BENCH_TRANSPORT"
#: The option ``limits`` as JSON.
LIMITS = "BENCH_LIMITS"
OURS = "kombu_delayq.transport:Transport"
TASK = "bench.begin"


def make_app(broker_url: str, transport: str = "") -> Celery:
    """Makes the app; everything but the broker is at its default.

    Args:
        broker_url: A Redis database.
        transport: ``broker_transport``; empty for stock Celery.
    """
    app = Celery("bench", broker=broker_url, set_as_current=False)
    if transport:
        app.conf.broker_transport = transport
    if LIMITS in os.environ:
        app.conf.broker_transport_options = {"limits": json.loads(os.environ[LIMITS])}

    @app.task(name=TASK, shared=False)
    def begin(due: float) -> None:
        arrive(due)

    return app


if BROKER in os.environ:
    app = make_app(os.environ[BROKER], os.environ.get(TRANSPORT, ""))
