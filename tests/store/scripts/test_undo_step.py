"""``undo_step.lua``: takes steps that were stored while their chain was cancelled out of the store again."""

from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, contents, waiting


def test_the_steps_alone_are_gone(store: DelayStore) -> None:
    """Steps are taken out once; another message of their id stays, and of the last nothing is left."""
    store.delivery.offer("q", waiting("i"), waiting("i", FUTURE_MS, "a step of [chain]"))
    assert store.chains.undo_step("q", "[chain]", waiting("i"))
    assert not store.chains.undo_step("q", "[chain]", waiting("i"))
    assert [one.body for one in by_id.browse(store, "q")] == [b"body of i"]
    assert store.chains.undo_step("q", "body", waiting("i"))
    store.queues.purge("q")
    assert contents(store.client) == {}
