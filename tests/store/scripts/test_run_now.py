"""``run_now.lua``: moves waiting messages to the lists from which kombu consumes before they are due."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    Ear,
    contents,
    duplicate_id,
    in_form,
    look,
    lose_body,
    lose_index,
    odd,
    only,
    popped,
    refuses_a_key_of_the_wrong_type,
    waiting,
)
from tests.support.store.priorities import SOME_STEPS, Kombu


def run_now(store: DelayStore, *messages: Waiting, body: bytes = b"new") -> list[str]:
    return store.lookup.run_now("q", [Change(message, 0.0, body) for message in messages])


def test_a_message_goes_to_the_end_of_its_queue(store: DelayStore, ear: Ear) -> None:
    """A message that is to run now is consumed after those that are ready, with its new body, and waits no more."""
    store.client.lpush("q", "ready before")
    store.delivery.offer("q", waiting("j", FUTURE_MS + 1))
    before = look(store)
    store.delivery.offer("q", waiting("i"))
    ear.heard()
    assert run_now(store, only(store, "i")) == ["transferred"]
    assert look(store) == {**before, b"q": [b"new", b"ready before"]}
    assert ear.heard() == []
    assert store.delivery.transfer("q").moved == 0


def test_each_message_of_a_call_has_an_answer_of_its_own(store: DelayStore) -> None:
    """Of several messages those that can be are transferred in their order; the others stay, and a word says why."""
    store.delivery.offer(
        "q", *(waiting(name, FUTURE_MS + n) for n, name in enumerate(("a", "other body", "b", "left")))
    )
    a, b, left = (only(store, name) for name in ("a", "b", "left"))
    store.lookup.cancel(["q"], ["left"])
    other = Waiting("q", "other body", FUTURE_MS, 0, b"which was", store.layout)
    changes = [Change(each, 0.0, each.id.encode()) for each in (b, left, other, a, a)]
    assert store.lookup.run_now("q", changes) == ["transferred", "not_delayed", "changed", "transferred", "not_delayed"]
    assert popped(store.client, "q") == [b"b", b"a"]
    assert look(store) == {
        b"waiting in q": [("other body", FUTURE_MS + 1, 0, b"body of other body")],
        b"{delayq}:queues": {b"q"},
    }


@pytest.mark.parametrize("steps", SOME_STEPS)
def test_a_message_goes_to_the_list_of_its_priority(make_store: MakeStore, steps: tuple[int, ...]) -> None:
    """With any priority steps, a message goes to the list to which a transfer would have moved it."""
    store = make_store(steps=steps)
    for queue, due_ms in (("q", FUTURE_MS), ("due", 0.0)):
        store.delivery.offer(queue, *(waiting(str(n), due_ms + n, str(n), n) for n in range(10)))
    store.delivery.transfer("due")
    for n in range(10):
        run_now(store, only(store, str(n)), body=str(n).encode())
    kombu = Kombu(steps, "\x06\x16")
    names = [list(dict.fromkeys(kombu._q_for_pri(queue, step) for step in steps)) for queue in ("q", "due")]
    lists = [[popped(store.client, key) for key in each] for each in names]
    assert lists[0] == lists[1]
    assert sum(map(len, lists[0])) == 10


def test_of_several_messages_with_an_id_each_may_run_alone(store: DelayStore) -> None:
    """Of messages that share an id, one or all can be transferred, and the others wait and are found."""
    store.delivery.offer("q", *(waiting("i", body=body) for body in ("one", "two", "three")))
    messages = {message.id: message for message in store.lookup.get(["q"], ["i"])["i"]}
    assert run_now(store, messages[duplicate_id("i", "two")], body=b"2") == ["transferred"]
    assert run_now(store, messages["i"], body=b"1") == ["transferred"]
    assert only(store, "i").body == b"three"
    assert run_now(store, only(store, "i"), body=b"3") == ["transferred"]
    assert popped(store.client, "q") == [b"2", b"1", b"3"]
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES, DUPLICATES)))


def test_any_id(store: DelayStore) -> None:
    """A message of any id is transferred alone, as the bytes that it has."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.delivery.offer("q", waiting("other"), odd(identity))
        assert run_now(store, only(store, identity), body=b"\xff\x00") == ["transferred"]
        assert popped(store.client, "q") == [b"\xff\x00"]
        assert len(contents(store.client)[in_form(store, BODIES).encode()]) == store.queues.size("q") == 1


def test_an_expiring_queue_takes_its_list_with_it(store: DelayStore) -> None:
    """In a queue with ``x-expires`` the list to which a message is moved expires with the rest."""
    store.delivery.offer("q", waiting("i", priority=3), waiting("j", priority=3), expire_ms=60_000)
    run_now(store, only(store, "i"), only(store, "j"))
    assert 0 < store.client.pttl("{q}\x06\x163") <= 60_010
    assert store.client.llen("{q}\x06\x163") == 2


def test_half_a_message_is_not_delayed(store: DelayStore) -> None:
    """A message whose body is lost cannot run, and the call says that it does not wait."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    i, j = only(store, "i"), only(store, "j")
    lose_body(store, "i")
    lose_index(store, "j")
    assert run_now(store, i, j) == ["not_delayed", "not_delayed"]
    assert not store.client.exists("q")


@pytest.mark.parametrize("key", [DUE, BODIES, DUPLICATES, "q", "{q}\x06\x163", "{q}\x06\x169"])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, also in the place of a list, the error names it and nothing moves."""
    store.delivery.offer("q", waiting("i", priority=3), waiting("i", body="two"))
    message = Waiting("q", "i", FUTURE_MS, 3, b"body of i", store.layout)
    refuses_a_key_of_the_wrong_type(store, key, lambda: run_now(store, message))
