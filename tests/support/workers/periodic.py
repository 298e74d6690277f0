"""Processes that arm periodic entries, one look at a time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab

from celery_ext.connection import open_store
from celery_ext.periodic import store as periodic_store
from celery_ext.periodic.arming import Arming
from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.periodic.messages import RunMessages
from celery_ext.periodic.source import source_of
from celery_ext.periodic.store import PeriodicStore
from celery_ext.waiting import by_id
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.store import DelayStore
from tests.support.workers.harness import TRANSPORT

HOUR_MS = 3_600_000
#: A schedule with an entry for another queue, and one that is wrong.
SCHEDULE: dict[str, Any] = {
    "report": {"task": "shop.report", "schedule": crontab(hour=7, minute=30), "options": {"queue": "slow"}},
    "tick": {"task": "shop.tick", "schedule": 600.0},
    "wrong": {"task": "shop.tick", "schedule": "soon"},
}


def every(seconds: Any, task: str = "shop.tick", **more: Any) -> dict[str, Any]:
    """Returns an entry of a schedule."""
    return {"task": task, "schedule": seconds, **more}


class Process:
    """What arms the entries of an app, and the store in which it does.

    Attributes:
        arming: It.
        store: The store.
    """

    def __init__(self, cleanup: ExitStack, url: str, name: str, schedule: dict[str, Any], **conf: Any) -> None:
        self.app = Celery("shop", broker=url, set_as_current=False)
        self.app.conf.update(broker_transport=TRANSPORT, beat_schedule=schedule, **{"result_expires": None, **conf})
        connection = cleanup.enter_context(self.app.connection_for_write())
        self.store: DelayStore = open_store(connection, pool=DelayedChannel.own_pool)
        cleanup.callback(self.store.close)
        self.arming = Arming(self.app, source_of(self.app), name)
        self.arming.begin(self.store, RunMessages(self.app, connection.default_channel))

    def step(self) -> "Process":
        """Looks, until what is found needs no second look at once."""
        while not self.arming.step():
            pass
        return self

    def armed(self, queue: str = "celery") -> list[tuple[str, float]]:
        """Returns id and due time of each waiting message, the next due first."""
        return [(str(message.id), message.due_ms) for message in by_id.browse(self.store, queue)]

    def age(self, entry: str, ms: int, queue: str = "celery") -> None:
        """Makes the store as it would be after ``ms`` without anybody: all that was armed has run."""
        key = PeriodicKeys(self.store.keys).notes(queue)
        note = self.store.part(PeriodicStore).notes([queue])[queue][entry]
        self.store.lookup.cancel([queue], [identity for _, identity in note.runs])
        self.store.client.hset(key, entry, f"{note.digest} {int(self.store.now_ms()) - ms}")
        self.arming._token = None


#: Starts such a process; arguments are its name and its schedule, keywords are settings of its app.
StartProcess = Callable[..., Process]


@pytest.fixture
def start_process(broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartProcess]:
    """Starts processes on one broker. Their lease ends only when it is given back: they renew it by a look alone."""
    monkeypatch.setattr(periodic_store, "LEASE_MS", HOUR_MS)
    with ExitStack() as cleanup:

        def start(name: str, schedule: dict[str, Any], **conf: Any) -> Process:
            return Process(cleanup, broker_url, name, schedule, **conf).step()

        yield start
