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


def test_a_purge_with_what_is_ready_empties_the_lists(store: DelayStore) -> None:
    """It counts and removes what is in the list of each priority, too; other queues stay."""
    store.client.lpush("other", "ready")
    before = contents(store.client)
    for at, ready in enumerate(store.keys.ready("q", (0, 3, 6, 9))):
        store.client.lpush(ready, *map(str, range(at + 1)))
    store.delivery.offer("q", waiting("i"))
    assert store.queues.purge("q", with_ready=True) == 1 + 2 + 3 + 4 + 1
    assert contents(store.client) == before
