"""``purge.lua``: removes a queue's delayed messages."""

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import PAST_MS, contents, waiting


def test_purge_removes_all_delayed_messages_and_nothing_else(store: DelayStore) -> None:
    """A purge counts and removes the delayed messages of one queue, due or not; ready ones and its name stay."""
    store.delivery.offer("other", waiting("i"))
    store.client.lpush("q", "ready")
    store.queues.know("q")
    before = contents(store.client)
    store.delivery.offer(
        "q", waiting("i", PAST_MS), *(waiting(str(number)) for number in range(19)), waiting("i", body="two")
    )
    assert store.queues.purge("q") == 21
    assert contents(store.client) == before
