"""``forget_empty.lua``: makes queues without messages unknown, and clears away what is left of them."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import KEYS, PAST_MS, contents, waiting


def emptied(store: DelayStore, queue: str = "q") -> None:
    """Leaves a queue that had a message."""
    store.delivery.offer(queue, waiting("i", PAST_MS, priority=3))
    assert store.delivery.transfer(queue).moved == 1


def test_a_queue_with_a_message_stays_known(make_store: MakeStore) -> None:
    """In whichever form it has one, its name and everything of it stay."""
    make_store(layout="hash").delivery.offer("q", waiting("i", priority=3), waiting("j"))
    store = make_store(layout="redisson")
    store.delivery.offer("r", waiting("i"))
    before = contents(store.client)
    assert store.queues.forget_empty(["q", "r"]) == []
    assert contents(store.client) == before


def test_of_an_empty_queue_the_counters_are_left_for_a_while(make_store: MakeStore) -> None:
    """Its name goes and the count of marked messages; the counters get a time to live, until it is used again."""
    store = make_store(layout="hash")
    emptied(store)
    assert store.client.pttl(KEYS.counts("q")) == -1
    assert store.queues.forget_empty(["q", "never used"]) == ["q", "never used"]
    assert store.queues.names() == []
    assert contents(store.client).keys() == {b"{q}\x06\x163"}
    assert store.client.pttl(KEYS.counts("q")) > 0
    store.delivery.offer("q", waiting("j"))
    assert store.queues.names() == ["q"]
    store.queues.keep_alive("q")
    assert store.client.pttl(KEYS.counts("q")) == -1


@pytest.mark.parametrize("step", ["SREM", "forget_empty"])
def test_a_message_that_comes_meanwhile_brings_the_name_back(
    store: DelayStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whether a publisher comes before the name has left, or just after, the queue is known in the end."""
    emptied(store)
    store.delivery.offer("warm", waiting("i"))

    def publish_before(act: str) -> None:
        original = getattr(store.queues._client, act)

        def late(*args: object, **how: object) -> object:
            if args[0] == step:
                monkeypatch.undo()
                store.delivery.offer("q", waiting("j"))
            return original(*args, **how)

        monkeypatch.setattr(store.queues._client, act, late)

    publish_before("ask" if step == "SREM" else "run_each")
    assert store.queues.forget_empty(["q"]) == []
    assert store.queues.names() == ["q", "warm"]
