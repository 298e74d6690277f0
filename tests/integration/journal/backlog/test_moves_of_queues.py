"""Messages of the journal go to another queue."""

import pytest

from celery_ext.journal import JournaledStore
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.store.upkeep.moving import Move
from tests.support.journal.stores import DAY_MS, offer
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
