"""``offer.lua``: puts messages into the store."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    FUTURE_MS,
    ORDER,
    PAST_MS,
    Ear,
    clock_ms,
    contents,
    in_form,
    kept_ms,
    look,
    only,
    popped,
    spoil_the_count,
    waiting,
)
from tests.support.store.layouts import hash_only


@hash_only  # test_entries.py has what is kept in Redisson's layout
def test_a_message_is_indexed_by_its_due_time_and_kept_whole(store: DelayStore) -> None:
    """On an empty database, one offer makes exactly the index, the layout and the queue's name."""
    assert store.delivery.offer("q", Offer("i", "4102444800123.457", 0, "body")) == ("first", 1, 0, 0)
    assert contents(store.client) == {
        b"delayq:{q}:due": [(b"i", 4102444800123.457)],
        b"delayq:{q}:bodies": {b"i": b"body"},
        b"{delayq}:queues": {b"q"},
    }


OFFERS = st.builds(
    Offer,
    id=st.sampled_from(["a", "b", "c", "\x7fa", "ü", ""]),
    due=st.sampled_from([repr(FUTURE_MS), repr(FUTURE_MS + 0.5), repr(PAST_MS), "-1", "0", "1e13", "inf", "+inf"]),
    priority=st.sampled_from([0, 0, 0, 3]),
    body=st.sampled_from(["", "one", "two", "\x7fthree", "x" * 16000, "y" * 16001]),
)


@hash_only
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.tuples(OFFERS, st.sampled_from([0, 0, 0, 60_000])), min_size=2, max_size=8))
def test_what_runs_first_does_the_same_as_the_rest(
    store: DelayStore, ear: Ear, monkeypatch: pytest.MonkeyPatch, offers: list[tuple[Offer, int]]
) -> None:
    """``offer_one`` answers, stores and announces what the rest of the script does, or leaves the message to that."""
    with monkeypatch.context() as patch:
        patch.setattr(scripts, "included_first", lambda *_: None)
        rest = scripts.load.__wrapped__("offer").text
    assert scripts.load("offer").text != rest

    def offer(text: str, offers: list[tuple[Offer, int]]) -> Any:
        store.client.flushall()
        keys, wake = LAYOUT_OF["hash"].keys(store.keys, "q"), store.keys.wake
        replies = [store.client.eval(text, 4, *keys, wake, "q", expire, *one) for one, expire in offers]
        ends = [store.client.pttl(key) > 0 for key in keys]
        return replies, contents(store.client), ends, ear.heard()

    assert offer(scripts.load("offer").text, offers) == offer(rest, offers)


@hash_only
@pytest.mark.parametrize(
    ("offer", "before"),
    [
        pytest.param(Offer("i", repr(FUTURE_MS), 6, "body"), [], id="priority"),
        pytest.param(Offer("i", repr(FUTURE_MS), 0, "body"), [waiting("other")], id="equal due time"),
        pytest.param(Offer("\x7fi", repr(FUTURE_MS), 0, "body"), [], id="id with the mark"),
        pytest.param(Offer("üi", repr(FUTURE_MS), 0, "body"), [], id="id that sorts after the mark"),
        pytest.param(Offer("i", repr(FUTURE_MS), 0, "\x7fbody"), [], id="body with the mark"),
    ],
)
def test_what_an_id_and_a_body_cannot_tell_is_marked(store: DelayStore, offer: Offer, before: list[Offer]) -> None:
    """A message whose priority or place among equal due times must be kept has both beside its id and body."""
    for each in before:
        store.delivery.offer("q", each)
    store.delivery.offer("q", offer)
    identity, body = offer.id.encode(), str(offer.body).encode()
    after = contents(store.client)
    assert after[ORDER.encode()] == b"1"
    assert (b"\x7f00000001" + identity, FUTURE_MS) in after[DUE.encode()]
    assert after[BODIES.encode()][identity] == b"\x7f00000001%d" % offer.priority + body


def signed(content: str, sender: str) -> str:
    """The message of a task, of which only the names of the sender differ from call to call."""
    return f'{{"a": "{content}", "origin": "{sender}", "b": 1, "reply_to": "of {sender}", "c": "x"}}'


@pytest.mark.parametrize("priority", [0, 6])
def test_a_second_attempt_of_another_process_is_the_same_message(store: DelayStore, priority: int) -> None:
    """Who repeats a call elsewhere has other names in it; the first message stays, also beside others of its id."""

    def offer(content: str, sender: str) -> tuple[int, ...]:
        return store.delivery.offer("q", waiting("i", PAST_MS, signed(content, sender), priority))[1:]

    assert [offer("one", "me"), offer("one", "you"), offer("two", "me"), offer("two", "you"), offer("one", "me")] == [
        *((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        *((0, 1, 0), (0, 1, 0)),
    ]
    store.delivery.transfer("q")
    assert offer("two", "") == (1, 0, 0)
    [ready] = [key for key in store.keys.ready("q", (0, 3, 6, 9)) if store.client.exists(key)]
    assert popped(store.client, ready) == [signed(content, "me").encode() for content in ("one", "two")]


@pytest.mark.parametrize("leave", ["transfer", "run_now"])
def test_a_second_message_of_an_id_is_known_again_when_the_first_has_left(store: DelayStore, leave: str) -> None:
    """A publisher that repeats after a lost reply stores nothing twice, also when the first of the id left meanwhile.

    Once it has left as well, its id is free.
    """
    second = waiting("i", FUTURE_MS, "second", priority=3)
    store.delivery.offer("q", waiting("i", PAST_MS, "first"))
    store.delivery.offer("q", second)
    if leave == "transfer":
        store.delivery.transfer("q")
    else:
        [first] = [each for each in store.lookup.get(["q"], ["i"])["i"] if each.body == b"first"]
        assert store.lookup.run_now("q", [Change(first, 0.0, b"first")]) == ["transferred"]
    before = contents(store.client)
    assert store.delivery.offer("q", second)[1:] == (0, 1, 0)
    assert contents(store.client) == before
    assert [each.body for each in store.lookup.cancel(["q"], ["i"])["i"]] == [b"second"]
    assert store.delivery.offer("q", second)[1:] == (1, 0, 0)


@hash_only  # in Redisson's layout a message that was put off is a new one
def test_a_second_message_of_an_id_is_known_again_also_when_it_was_put_off(store: DelayStore) -> None:
    """A repeated offer finds a message by its content, wherever it waits by now."""
    second = waiting("i", FUTURE_MS, "second")
    store.delivery.offer("q", waiting("i", PAST_MS, "first"), second)
    store.delivery.transfer("q")
    [kept] = store.lookup.get(["q"], ["i"])["i"]
    assert store.lookup.reschedule("q", [Change(kept, FUTURE_MS + 1, b"second, later")]) == ["rescheduled"]
    assert store.delivery.offer("q", second)[1:] == (0, 1, 0)


@pytest.mark.parametrize("delay_ms", [0.001, 1.5, 60_000.0, 3e14])
def test_a_relative_due_time_counts_from_redis_clock(store: DelayStore, delay_ms: float) -> None:
    """A delay counts from the moment at which the message reaches Redis, by Redis's clock."""
    before_ms = clock_ms(store.client)
    store.delivery.offer("q", Offer("i", f"+{delay_ms!r}", 0, "body"))
    after_ms = clock_ms(store.client)
    due_ms = only(store, "i").due_ms
    assert kept_ms(store, before_ms + delay_ms) <= due_ms <= kept_ms(store, after_ms + delay_ms)


def test_a_count_that_is_no_number_stops_the_offer(store: DelayStore) -> None:
    """Where the count of messages has been overwritten with a text, nothing is stored."""
    store.delivery.offer("q", waiting("other"))
    spoil_the_count(store)
    before = look(store)
    with pytest.raises(ResponseError):
        store.delivery.offer("q", waiting("i", priority=3))
    assert look(store) == before


def test_the_count_may_begin_anew(store: DelayStore) -> None:
    """No message is lost when the count has outgrown its eight digits, or four bytes."""
    store.delivery.offer("q", waiting("a"))
    if store.layout == "hash":
        store.client.set(ORDER, 2**32 - 2)
    else:
        store.client.hset(in_form(store, ORDER), "order", 2**32 - 2)
    for name in ("i", "j", "k"):
        store.delivery.offer("q", waiting(name, PAST_MS, priority=3))
    assert [each[0] for each in look(store)[b"waiting in q"]] == ["j", "k", "i", "a"]
    if store.layout == "hash":
        assert store.client.zrange(DUE, 0, 2) == [b"\x7f00000000j", b"\x7f00000001k", b"\x7fffffffffi"]
    assert store.delivery.transfer("q").moved == 3
