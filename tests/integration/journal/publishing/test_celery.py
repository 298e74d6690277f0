"""What Celery adds to a message, and what it does beside it, for a task that is due late."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery import Celery

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.events import captured


def test_headers_and_events_of_a_far_task(own_server: PrivateRedis, tmp_path: Path) -> None:
    """The row has the headers of tracers, the event task-sent is sent, and the result backend stays untouched."""
    client = own_server.client()
    app = Celery(broker=own_server.url, backend=own_server.url, broker_transport=TRANSPORT)
    app.conf.broker_transport_options = {"journal_url": f"sqlite:///{tmp_path}/journal.db"}
    app.conf.task_send_sent_event = True
    proj: Any = SimpleNamespace(app=app)
    headers = {"sentry-trace": "1-2-1", "traceparent": "00-1-2-01", "baggage": "a=b"}
    with captured(proj) as events:
        until(lambda: client.pubsub_numpat() + len(client.pubsub_channels("*celeryev*")), what="the events are heard")
        sent = app.send_task("t", countdown=40 * 86_400, headers=headers)
        until(lambda: [event["uuid"] for event in events if event["type"] == "task-sent"] == [sent.id])
    with app.connection_for_write() as connection:
        [row] = connection.default_channel.store.journal.get([sent.id])
    assert headers.items() <= json.loads(row.body)["headers"].items()
    assert sent.state == "PENDING"
    assert not client.keys("celery-task-meta-*")
    sent.forget()
