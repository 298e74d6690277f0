"""``reschedule.lua``: changes when waiting messages are due."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.conditions import until
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    ORDER,
    PAST_MS,
    Ear,
    announced,
    clock_ms,
    contents,
    duplicate_id,
    in_form,
    kept_ms,
    look,
    odd,
    only,
    popped,
    refuses_a_key_of_the_wrong_type,
    waiting,
)
from tests.support.store.layouts import hash_only


def change(store: DelayStore, identity: str, due_ms: float, body: bytes = b"new") -> str:
    """Reschedules the one message of an id."""
    [word] = store.lookup.reschedule("q", [Change(only(store, identity), due_ms, body)])
    return word


def test_a_message_gets_its_new_due_time_and_body(store: DelayStore) -> None:
    """A rescheduled message waits under its id with the new due time and the new body, and no other key changes."""
    store.delivery.offer("q", waiting("i"), waiting("j", FUTURE_MS + 1))
    assert change(store, "i", FUTURE_MS + 2.5) == "rescheduled"
    assert look(store) == {
        b"waiting in q": [("j", FUTURE_MS + 1, 0, b"body of j"), ("i", kept_ms(store, FUTURE_MS + 2.5), 0, b"new")],
        b"{delayq}:queues": {b"q"},
    }
    kept = contents(store.client)
    assert [len(kept[key.encode()]) for key in store.keys.stored("q", store.layout)[:2]] == [2, 2]


def test_each_message_of_a_call_has_an_answer_of_its_own(store: DelayStore) -> None:
    """Of several messages those that can be are rescheduled; for the others a word says why not, and they stay."""
    store.delivery.offer(
        "q", *(waiting(name, FUTURE_MS + n) for n, name in enumerate(("moved", "other body", "past", "left")))
    )
    moved, _, past, left = (only(store, name) for name in ("moved", "other body", "past", "left"))
    store.lookup.cancel(["q"], ["left"])
    changes = [
        Change(left, FUTURE_MS, b"new"),
        Change(Waiting("q", "other body", FUTURE_MS, 0, b"which was", store.layout), FUTURE_MS, b"new"),
        Change(past, clock_ms(store.client), b"new"),
        Change(past, PAST_MS, b"new"),
        Change(moved, FUTURE_MS + 9, b"new"),
        Change(moved, FUTURE_MS + 8, b"newer"),
    ]
    assert store.lookup.reschedule("q", changes) == ["not_delayed", "changed", "due", "due", "rescheduled", "changed"]
    assert look(store) == {
        b"waiting in q": [
            ("other body", FUTURE_MS + 1, 0, b"body of other body"),
            ("past", FUTURE_MS + 2, 0, b"body of past"),
            ("moved", FUTURE_MS + 9, 0, b"new"),
        ],
        b"{delayq}:queues": {b"q"},
    }
    assert store.lookup.reschedule("never used", [Change(moved, FUTURE_MS, b"new")]) == ["not_delayed"]
    assert store.client.exists(*store.keys.stored("never used", store.layout)) == 0


def test_only_a_new_head_is_announced(store: DelayStore, ear: Ear) -> None:
    """A transfer worker is told when the queue's next message is due earlier than before, and else not.

    In Redisson's layout it is also told when the next message is another than before, though it is due no earlier.
    """
    store.delivery.offer("q", waiting("i", FUTURE_MS + 10), waiting("j", FUTURE_MS + 20))
    ear.heard()
    for identity, due_ms, heard in (
        ("j", FUTURE_MS + 11, []),
        ("i", FUTURE_MS + 12, []),
        ("j", FUTURE_MS + 11, [announced(store, FUTURE_MS + 11)] if store.layout == "redisson" else []),
        ("i", FUTURE_MS + 3.5, [announced(store, FUTURE_MS + 3.5)]),
        ("j", FUTURE_MS + 3.5, []),
    ):
        assert change(store, identity, due_ms) == "rescheduled"
        assert ear.heard() == heard


@pytest.mark.parametrize("priority", [0, 9])
def test_it_comes_last_among_those_due_in_the_same_instant(store: DelayStore, priority: int) -> None:
    """A message that is put on a due time which others have is delivered after them, with its own priority."""
    store.delivery.offer("q", waiting("i", FUTURE_MS + 1, priority=priority), waiting("a", FUTURE_MS + 2), waiting("b"))
    for identity in ("i", "a"):
        assert change(store, identity, FUTURE_MS, identity.encode()) == "rescheduled"
    page = store.scan.browse("q")
    assert [(each.id, each.priority, each.body) for each in page.messages] == [
        ("b", 0, b"body of b"),
        ("i", priority, b"i"),
        ("a", 0, b"a"),
    ]


@hash_only
def test_a_message_that_needs_its_mark_no_more_goes_without(store: DelayStore) -> None:
    """A message that was marked for its due time alone is kept bare at one of its own."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    assert change(store, "j", FUTURE_MS + 1, b"\x7fbody") == "rescheduled"
    assert change(store, "j", FUTURE_MS + 2) == "rescheduled"
    assert contents(store.client)[b"delayq:{q}:due"] == [(b"i", FUTURE_MS), (b"j", FUTURE_MS + 2)]
    assert only(store, "j").body == b"new"


def test_one_of_several_messages_with_an_id_stays_beside_the_others(store: DelayStore) -> None:
    """A message that is stored beside another of its id stays so, and both are still found by it."""
    two = duplicate_id("i", "two")
    store.delivery.offer("q", waiting("i", FUTURE_MS + 1, "one"), waiting("i", FUTURE_MS + 2, "two"))
    for identity, due_ms in ((two, FUTURE_MS), ("i", FUTURE_MS + 3)):
        message = next(each for each in store.lookup.get(["q"], ["i"])["i"] if each.id == identity)
        assert store.lookup.reschedule("q", [Change(message, due_ms, b"new")]) == ["rescheduled"]
    found = store.lookup.get(["q"], ["i"])["i"]
    # In Redisson's layout the id of the second tells of its body, which is another now.
    beside = two if store.layout == "hash" else duplicate_id("i", "new")
    assert [(each.id, each.due_ms) for each in found] == [(beside, FUTURE_MS), ("i", FUTURE_MS + 3)]
    assert only(store, beside) == found[0]


def test_equal_messages_stay_two(store: DelayStore) -> None:
    """Two messages of an id that get the same body are still two."""
    store.delivery.offer("q", waiting("i", body="one"), waiting("i", body="two"))
    changes = [Change(message, FUTURE_MS + 1, b"new") for message in store.lookup.get(["q"], ["i"])["i"]]
    assert store.lookup.reschedule("q", changes) == ["rescheduled"] * 2
    assert [each.body for each in store.lookup.get(["q"], ["i"])["i"]] == [b"new"] * 2


def test_a_message_that_becomes_its_duplicate_s_equal_is_kept(store: DelayStore) -> None:
    """A message that gets the very bytes of another of its id is still there."""
    store.delivery.offer("q", waiting("i", body="one"), waiting("i", body="two"))
    first = next(each for each in store.lookup.get(["q"], ["i"])["i"] if each.body == b"one")
    assert store.lookup.reschedule("q", [Change(first, FUTURE_MS + 1, b"two")]) == ["rescheduled"]
    assert [each.body for each in store.lookup.get(["q"], ["i"])["i"]] == [b"two"] * 2


def test_any_id(store: DelayStore) -> None:
    """A message of any id is rescheduled, is found by it, and is delivered once."""
    store.delivery.offer("q", *(odd(identity, due_ms=FUTURE_MS) for identity in ODD_IDS))
    soon_ms = clock_ms(store.client) + 2_000
    bodies = [b"\xff" + bytes([n]) for n in range(len(ODD_IDS))]
    for identity, body in zip(ODD_IDS, bodies, strict=True):
        assert change(store, identity, soon_ms, body) == "rescheduled"
        assert only(store, identity) == Waiting("q", identity, kept_ms(store, soon_ms), 0, body, store.layout)
    until(lambda: store.delivery.transfer("q").moved == 0 and store.queues.size("q") == 0)
    assert sorted(popped(store.client, "q")) == bodies
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES, DUPLICATES)))


def test_an_expiring_queue_keeps_its_time(store: DelayStore) -> None:
    """Rescheduling the only message of a queue with ``x-expires`` lets the queue still expire when it would have."""
    store.delivery.offer("q", waiting("i"), expire_ms=60_000)
    assert change(store, "i", FUTURE_MS + 1) == "rescheduled"
    most_ms = FUTURE_MS - clock_ms(store.client) + 61_000
    assert all(most_ms - 60_000 < store.client.pttl(in_form(store, key)) <= most_ms for key in (DUE, BODIES))
    store.delivery.offer("other", waiting("i"))
    message = Waiting("other", "i", 0.0, 0, b"body of i", store.layout)
    store.lookup.reschedule("other", [Change(message, FUTURE_MS + 1, b"new")])
    assert store.client.pttl(in_form(store, "delayq:{other}:due")) == -1


@pytest.mark.parametrize("key", [DUE, BODIES, ORDER, DUPLICATES])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, ear: Ear, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and nothing is rescheduled."""
    store.delivery.offer("q", waiting("i"), waiting("i", body="two"))
    ear.heard()
    message = Waiting("q", "i", FUTURE_MS, 0, b"body of i", store.layout)
    act = lambda: store.lookup.reschedule("q", [Change(message, FUTURE_MS - 1, b"new")])  # noqa: E731
    refuses_a_key_of_the_wrong_type(store, key, act)
    assert ear.heard() == []
