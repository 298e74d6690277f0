"""``watch_heads.lua``: reads whether the leading transfer worker is there, and which message of each queue is next."""

from contextlib import ExitStack, closing

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import DelayedQueue, Head
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, clock_ms, contents, in_form, kept_ms, waiting


@pytest.fixture
def store(make_store: MakeStore) -> DelayStore:
    """A store whose leases end long after the test, and to which nobody listens any more."""
    store = make_store(lease_ttl=3600)
    until(lambda: not store.client.pubsub_numsub(store.keys.wake)[0][1])
    return store


def is_gone(store: DelayStore) -> bool:
    return store.leases.watch_heads([]).is_gone


def test_without_a_leader_it_is_gone(store: DelayStore) -> None:
    """Before anybody leads, and after a leader has given its lease back, it is gone."""
    assert is_gone(store)
    store.leases.lead("one")
    store.leases.release("one")
    assert is_gone(store)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_worker_whose_subscription_ends_is_gone(store: DelayStore, workers: int) -> None:
    """While all who hold a lease listen, the leader is there; when one of them does not any more, it may be gone."""

    def listening() -> int:
        return int(store.client.pubsub_numsub(store.keys.wake)[0][1])

    with ExitStack() as others:
        killed = store.delivery.listen()
        for n in range(workers):
            store.leases.lead(str(n))
        until(lambda: listening() == 1)
        assert is_gone(store) == (workers > 1)
        for _ in range(workers - 1):
            others.enter_context(closing(store.delivery.listen()))
        until(lambda: listening() == workers)
        assert not is_gone(store)
        killed.close()
        until(lambda: listening() == workers - 1)
        assert is_gone(store)


def test_where_the_question_is_forbidden_the_lease_counts(store: DelayStore) -> None:
    """A user who may not ask for subscribers sees a leader as long as its lease lasts."""
    store.client.execute_command("ACL", "SETUSER", "asks", "on", ">secret", "~*", "+@all", "-pubsub")
    store.leases.lead("one")
    assert is_gone(store)  # nobody listens
    store.client.execute_command("AUTH", "asks", "secret")
    try:
        assert not is_gone(store)
        store.leases.release("one")
        assert is_gone(store)
    finally:
        store.client.execute_command("AUTH", "default", "any")
        store.client.execute_command("ACL", "DELUSER", "asks")


def test_heads_tell_messages_of_one_due_time_apart(store: DelayStore) -> None:
    """The head of each queue has its due time, and another beginning once the message before it has left."""
    delayed_queues = [DelayedQueue(queue, store.layout) for queue in ("q", "none", "r")]
    store.delivery.offer("q", *(waiting(f"i{n}", PAST_MS) for n in range(3)))
    store.delivery.offer("r", waiting("i", FUTURE_MS + 0.125))
    before, before_ms, entries = contents(store.client), clock_ms(store.client), set()
    seen = store.leases.watch_heads(delayed_queues)
    assert before_ms <= seen.now_ms <= clock_ms(store.client)
    assert {delayed.queue: head.due_ms for delayed, head in seen.heads.items()} == {
        "q": PAST_MS,
        "r": kept_ms(store, FUTURE_MS + 0.125),
    }
    assert contents(store.client) == before
    for _ in range(3):
        entries.add(store.leases.watch_heads(delayed_queues).heads[delayed_queues[0]])
        store.lookup.cancel(["q"], [f"i{len(entries) - 1}"])
    assert len(entries) == 3
    assert {head.due_ms for head in entries} == {PAST_MS}


def test_a_key_of_the_wrong_type_counts_as_due(store: DelayStore) -> None:
    """One queue with somebody else's key in the way hides no other; it seems due, so that its transfer tells of it."""
    store.client.rpush(in_form(store, "delayq:{broken}:due"), "somebody else's")
    store.delivery.offer("q", waiting("i"))
    broken, sound = DelayedQueue("broken", store.layout), DelayedQueue("q", store.layout)
    heads = store.leases.watch_heads([broken, sound]).heads
    assert heads[broken] == Head(0.0, b"")
    assert heads[sound].due_ms == FUTURE_MS
