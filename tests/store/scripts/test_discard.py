"""``discard.lua``: removes waiting messages that are still as they were read."""

from collections.abc import Callable

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    FUTURE_MS,
    clock_ms,
    contents,
    look,
    lose_body,
    lose_index,
    only,
    refuses_a_key_of_the_wrong_type,
    waiting,
)


def discard(store: DelayStore, *messages: Waiting, chain: str = "") -> list[str]:
    return store.lookup.discard("q", [(message, chain) for message in messages])


def test_a_discarded_message_leaves_no_trace(store: DelayStore) -> None:
    """What is discarded is gone from every key, and nothing else is touched."""
    store.delivery.offer("q", waiting("kept"))
    before = look(store)
    store.delivery.offer("q", waiting("i", FUTURE_MS + 1), waiting("marked", priority=3))
    assert discard(store, only(store, "i"), only(store, "marked")) == ["cancelled", "cancelled"]
    assert look(store) == before
    assert not store.client.exists("{delayq}:cancelled")


def test_only_what_is_as_it_was_read_is_discarded(store: DelayStore) -> None:
    """A message that has another body or another due time by now stays, and the others of the call go."""
    store.delivery.offer("q", *(waiting(name) for name in ("body", "due", "gone", "same")))
    read = [only(store, name) for name in ("body", "due", "gone", "same", "same")]
    store.lookup.reschedule("q", [Change(read[0], FUTURE_MS, b"new"), Change(read[1], FUTURE_MS + 1, b"body of due")])
    store.lookup.cancel(["q"], ["gone"])
    assert discard(store, *read) == ["changed", "changed", "not_delayed", "cancelled", "not_delayed"]
    assert {message.id for message in by_id.browse(store, "q")} == {"body", "due"}


def test_the_chain_of_a_step_ends(make_store: MakeStore) -> None:
    """The chain of a discarded step takes no further step, as after a cancel; a message that stays ends none."""
    store = make_store(cancelled_ttl=3600)
    for name in ("step", "moved"):
        assert store.chains.step("q", "chain", waiting(name, body=f"{CHAIN_ID} of chain")) in ("first", "behind")
    read = {name: only(store, name) for name in ("step", "moved")}
    store.lookup.reschedule("q", [Change(read["moved"], FUTURE_MS + 1, read["moved"].body or b"")])
    assert discard(store, read["moved"], chain="moved") == ["changed"]
    assert discard(store, read["step"], chain="step") == ["cancelled"]
    assert set(store.client.zrange("{delayq}:chains", 0, -1)) == {b"", b"moved"}
    [(name, until)] = store.client.zrange("{delayq}:cancelled", 0, -1, withscores=True)
    assert (name, 3500_000 < until - clock_ms(store.client) <= 3600_000) == (b"step", True)
    assert 3500_000 < store.client.pttl("{delayq}:cancelled") <= 3600_000
    for name, word in (("step", "cancelled"), ("moved", "waits")):
        assert store.chains.step("q", "chain", waiting(name, body=f"{CHAIN_ID} of chain")) == word


def test_notes_that_are_out_of_date_go(store: DelayStore) -> None:
    """Each chain that ends takes up to two old notes with it, so that their number falls."""
    store.client.zadd("{delayq}:cancelled", {f"old{n}": n for n in range(5)})
    for name in ("a", "b"):
        store.chains.step("q", "chain", waiting(name, body=f"{CHAIN_ID} of chain"))
        discard(store, only(store, name), chain=name)
    assert store.client.zrange("{delayq}:cancelled", 0, -1) == [b"old4", b"a", b"b"]


def test_half_a_message_is_not_delayed(store: DelayStore) -> None:
    """A message whose body or whose index entry is lost stays for `delayq repair`."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    i, j = only(store, "i"), only(store, "j")
    lose_body(store, "i")
    lose_index(store, "j")
    before = contents(store.client)
    assert discard(store, i, j) == ["not_delayed", "not_delayed"]
    assert contents(store.client) == before


@pytest.mark.parametrize("key", ["{delayq}:cancelled", "{delayq}:chains"])
def test_a_note_of_chains_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """The error names the key; the step has left before."""
    store.delivery.offer("q", waiting("i"))
    message, stored = only(store, "i"), LAYOUT_OF[store.layout].keys(store.keys, "q")
    refuses_a_key_of_the_wrong_type(store, key, lambda: discard(store, message, chain="i"), stepped=stored)
    assert store.queues.size("q") == 0


def test_counters_end_with_a_queue_that_expires(store: DelayStore) -> None:
    """In a queue with ``x-expires`` what operations count ends with the queue's keys, also after its last message."""
    counts = store.keys.counts("q")
    due_ms = clock_ms(store.client) + 3_600_000

    def leaves(act: Callable[[Waiting], object]) -> None:
        store.delivery.offer("q", waiting("i", due_ms), expire_ms=60_000)
        act(only(store, "i"))
        assert 3_600_000 < store.client.pttl(counts) <= 3_670_000
        store.client.delete(counts)

    leaves(lambda message: discard(store, message))
    leaves(lambda message: store.lookup.cancel(["q"], [message.id]))
    leaves(lambda message: store.lookup.run_now("q", [Change(message, 0.0, b"new")]))
    leaves(lambda message: store.lookup.reschedule("q", [Change(message, due_ms + 1, b"new")]))
    store.delivery.offer("p", waiting("i"))
    store.lookup.cancel(["p"], ["i"])
    assert store.client.pttl(store.keys.counts("p")) == -1
