"""Messages of the journal go to another queue."""

import pytest

from celery_ext.journal import JournaledStore
from celery_ext.journal.upkeep import check
from celery_ext.maintenance.move import QueueMove, move
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.store.upkeep.moving import Move
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, in_redis, offer, restored
from tests.support.slots import SLOTS
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


@pytest.mark.skipif(not SLOTS, reason="on a plain server any name will do")
def test_no_row_goes_to_a_queue_that_cannot_be(journaled_store: JournaledStore) -> None:
    """A name that Redis Cluster has no slot for is refused before any row has changed."""
    store = journaled_store
    store.delivery.place("old", [offer("far", clock_ms(store.client) + 900 * DAY_MS)])
    [message] = store.scan.browse("old").messages
    with pytest.raises(InvalidQueueName):
        store.moving.move_to("old", "new{", [Move(message, message.body or b"")])
    assert store.scan.browse("old").messages == [message]
    assert store.moving.move_to("old", "new", [Move(message, message.body or b"")]) == ["moved"]


@pytest.mark.skipif(not SLOTS, reason="on a plain server a move is one step")
def test_what_a_leader_brings_for_a_dead_command_is_not_lost_with_redis(make_journaled: MakeJournaled) -> None:
    """The row stays with the old queue: a restore brings the message there, and another move to the new one."""
    store = make_journaled(journal="all")
    Promoter(store).beat().office.enter("old")
    now_ms = clock_ms(store.client)
    store.delivery.offer("old", offer("near", now_ms + HOUR_MS))
    store.delivery.place("old", [offer("far", now_ms + 900 * DAY_MS)])
    [near] = store.redis_alone.scan.browse("old").messages
    assert store.moving.depart("old", "new", [Move(near, near.body or b"")], "move") == ["moved"]  # the command dies
    assert store.redis_alone.moving.resume("old") == 1
    assert in_redis(store, "new") == ["near"]
    assert [message.id for message in store.scan.browse("old").messages] == ["far"]
    assert {page.queue: page.missing for page in check(store) if page} == {"old": 1, "new": 0}
    assert sum(move(store, QueueMove("old", "new"))) == 1
    assert [message.id for message in store.scan.browse("new").messages] == ["near", "far"]

    store.client.flushall()
    store = make_journaled(journal="all", journal_lead=7200.0)
    promoter = Promoter(store).beat()
    assert restored(store).restored == 1
    assert [message.id for message in store.scan.browse("old").messages] == ["near"]
    assert sum(move(store, QueueMove("old", "new"))) == 1
    assert [message.id for message in store.scan.browse("new").messages] == ["near", "far"]
    promoter.round()
    assert (in_redis(store, "new"), in_redis(store, "old")) == (["near"], [])
