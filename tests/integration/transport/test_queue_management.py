"""Purging, deleting and declaring queues that hold delayed messages."""

from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Exchange, Queue
from kombu.exceptions import ChannelError

from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

WORK = Exchange("work")


@pytest.fixture
def channel(proj: Proj) -> Iterator[Any]:
    """A channel of a broker: ``jobs`` holds 3 delayed messages and 2 ready ones, ``later`` 2 delayed ones."""
    queues = {name: Queue(name, WORK, name) for name in ("jobs", "later", "empty")}
    with proj.connection() as connection:
        producer = connection.Producer(exchange=WORK)
        for queue in queues.values():
            queue.bind(connection.default_channel).declare()
        for name, delays in (("jobs", (60, 60, 60, 0, 0)), ("later", (60, 60))):
            for priority, delay in enumerate(delays):
                producer.publish(name, routing_key=name, DelaySeconds=delay, priority=priority)
        yield connection.default_channel


def _left(proj: Proj) -> set[str]:
    """Returns the names of all keys that belong to a queue. A purge leaves its counters."""
    keys = proj.server.client().keys()
    return {key for key in keys if not key.startswith("_kombu.binding") and key != "{delayq}:queues"}


def test_queue_purge_counts_delayed_and_ready_messages(proj: Proj, channel: Any) -> None:
    """``queue_purge`` removes delayed and ready messages and returns how many there were; other queues stay."""
    assert channel.queue_purge("jobs") == 5
    assert (proj.delayed("jobs"), proj.delayed("later")) == (0, 2)
    assert channel.queue_purge("jobs") == 0
    assert channel.queue_purge("later") == 2
    assert all(key.endswith(":counts") for key in _left(proj))


def test_queue_delete_takes_delayed_messages_along(proj: Proj, channel: Any) -> None:
    """``queue_delete`` removes a queue with what it holds, delayed or ready, and leaves the others."""
    channel.queue_delete("jobs")
    assert (proj.delayed("jobs"), proj.delayed("later")) == (0, 2)
    assert all("later" in key for key in _left(proj))
    channel.queue_delete("later")
    assert _left(proj) == set()
    assert channel.get_table("work") == [("empty", "", "empty")]


def test_a_queue_with_only_delayed_messages_is_not_empty(proj: Proj, channel: Any) -> None:
    """``queue_delete(if_empty)`` keeps a queue whose messages all wait, and deletes one that has none."""
    channel.queue_delete("later", if_empty=True)
    assert proj.delayed("later") == 2
    channel.queue_purge("later")
    channel.queue_delete("later", if_empty=True)
    channel.queue_delete("empty", if_empty=True)
    assert [queue for queue, _, _ in channel.get_table("work")] == ["jobs"]
    assert proj.delayed("jobs") == 3


def test_passive_declare_finds_a_queue_with_only_delayed_messages(channel: Any) -> None:
    """A passive declare succeeds while a queue holds messages of either kind, counts the ready ones, else fails."""
    assert channel.queue_declare("jobs", passive=True).message_count == 2
    assert channel.queue_declare("later", passive=True).message_count == 0
    channel.queue_delete("later")
    for absent in ("later", "never"):
        with pytest.raises(ChannelError, match="NOT_FOUND"):
            channel.queue_declare(absent, passive=True)


def test_celery_purge_counts_delayed_and_ready_tasks(make_proj: MakeProj) -> None:
    """The command ``celery purge`` removes and counts the tasks of all known queues, delayed and ready ones."""
    proj = make_proj(task_queues={"celery": {}, "other": {}})
    for countdown in (60, 60, None):
        proj.send("record", countdown=countdown)
    proj.send("record", queue="other", countdown=60)
    assert "Purged 4 messages from 2 known task queues" in proj.celery("purge", "-f")
    assert all(key.endswith(":counts") for key in _left(proj))
    assert "No messages purged" in proj.celery("purge", "-f")
