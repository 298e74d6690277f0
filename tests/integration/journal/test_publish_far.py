"""What is due late goes to the journal."""

from pathlib import Path

from celery import Celery

from celery_ext import cancel, get
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis

DAY_S = 86_400


def test_a_far_task_waits_in_the_journal_alone(own_server: PrivateRedis, tmp_path: Path) -> None:
    """A task that is due beyond the horizon takes no memory of Redis, and is found."""
    options = {"journal_url": f"sqlite:///{tmp_path}/journal.db"}
    app = Celery(broker=own_server.url, broker_transport=TRANSPORT, broker_transport_options=options)
    with app.connection_for_write() as connection:
        assert connection.transport is not None
        sent = app.send_task("remind", args=[1], countdown=40 * DAY_S, ignore_result=True)
        near = app.send_task("remind", args=[2], countdown=60, ignore_result=True)
    found = get(app, [sent.id, near.id])
    assert {task and task.message.layout for task in found.values()} == {"journal", "hash"}
    assert own_server.client().zcard("delayq:{celery}:due") == 1
    assert cancel(app, near.id) == "cancelled"
