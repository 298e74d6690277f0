"""``undo_step.lua``: takes a message that was just stored out of the store again."""

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, contents, waiting


def test_the_message_alone_is_gone(store: DelayStore) -> None:
    """A message is taken out once; another one of its id stays, and of the last nothing is left."""
    store.delivery.offer("q", waiting("i"), waiting("i", FUTURE_MS, "duplicate"))
    assert store.chains.undo_step("q", waiting("i", body="duplicate"))
    assert not store.chains.undo_step("q", waiting("i", body="duplicate"))
    assert [one.body for one in store.scan.browse("q").messages] == [b"body of i"]
    assert store.chains.undo_step("q", waiting("i"))
    store.queues.purge("q")
    assert contents(store.client) == {}
