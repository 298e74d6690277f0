"""Stores with a journal, and a promoter that a test drives step by step."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore, placement
from celery_ext.journal.leadership import PromoterLeadership
from celery_ext.journal.recovery import Restored, restore
from celery_ext.journal.rows import Addition
from celery_ext.journal.worker import RowPromoter, Words
from celery_ext.waiting import by_id
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import Offer
from tests.support.store.tuned import tuned

HOUR_MS, DAY_MS = 3_600_000.0, 86_400_000.0

#: Makes a store with a journal; keywords are options, ``server=`` and ``keys=``.
MakeJournaled = Callable[..., JournaledStore]


@pytest.fixture
def make_journaled(
    redis_server: PrivateRedis, journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeJournaled]:
    """Makes stores over one empty Redis and one empty journal, in a process that remembers no attempt."""
    # An earlier test may have failed to publish the same message: its process would send it to the same place again.
    monkeypatch.setattr(placement, "_attempts", placement.Attempts())
    made: list[JournaledStore] = []

    def make(server: PrivateRedis = redis_server, keys: Keys | None = None, **options: Any) -> JournaledStore:
        made.append(journaled(server.port, {"journal_url": journal_url, **options}, keys or Keys()))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def journaled_store(make_journaled: MakeJournaled) -> JournaledStore:
    """A store with a journal of all messages."""
    return make_journaled(journal="all")


def journaled(port: int, options: dict[str, Any], keys: Keys = Keys()) -> JournaledStore:  # noqa: B008 it is frozen
    """Makes a store with a journal."""
    return JournaledStore(redis.Redis(port=port, db=keys.db), keys, (0, 3, 6, 9), tuned(**options))


class Promoter:
    """A promoter that does what a test says, and nothing meanwhile."""

    def __init__(self, store: JournaledStore, name: str = "promoter") -> None:
        self.store = store
        self.leadership = PromoterLeadership(store, name)
        self.leadership.heartbeat_s = 0.0  # each call heartbeats
        self._rows = RowPromoter(store, self.leadership, lambda: True)
        self.leadership.begin()

    def heartbeat(self) -> "Promoter":
        """Sends a heartbeat, and notes the watermarks."""
        self.leadership.keep()
        return self

    def promote(self) -> Words:
        """Promotes what is due soon."""
        return self._rows.promote_due()


def restored(store: JournaledStore, **options: Any) -> Restored:
    """Restores, and adds up what the pages did."""
    pages = list(restore(store, **options))
    return Restored(*(sum(column) for column in zip(*pages, strict=True))) if pages else Restored(0, 0, 0, 0, 0, 0)


def body_of(identity: str) -> bytes:
    """Makes a message as kombu would push it."""
    properties = {"delivery_tag": f"tag of {identity}", "delivery_info": {"exchange": "", "routing_key": "q"}}
    message = {"body": "W10=", "headers": {"id": identity, "task": "t"}, "properties": properties}
    return json.dumps(message).encode()


def addition(identity: str, due_ms: float, queue: str = "q") -> Addition:
    """Makes a message for the journal."""
    return Addition(queue, identity, due_ms, 0, body_of(identity))


def offer(identity: str, due_ms: float) -> Offer:
    """Makes a message for a store."""
    return Offer(identity, repr(due_ms), 0, body_of(identity))


def in_redis(store: JournaledStore, queue: str = "q") -> list[str]:
    """Returns the ids of the messages that wait in Redis, the next due first."""
    return [message.id for message in by_id.browse(store.redis_alone, queue)]


def delivered(store: JournaledStore, queue: str = "q") -> list[str]:
    """Delivers what is due. Returns the ids of all messages that were ever pushed to the queue, in order."""
    while store.delivery.transfer(queue).more:
        pass
    return [json.loads(body)["headers"]["id"] for body in reversed(store.client.lrange(queue, 0, -1))]
