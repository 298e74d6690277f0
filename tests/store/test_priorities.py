"""To which of a queue's lists a message goes, by its priority."""

import pytest

from kombu_delayq.store.keys import Keys
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, contents, popped, waiting
from tests.support.store.priorities import STEPS, Kombu


@pytest.mark.parametrize(
    ("steps", "separator"),
    [*((steps, "\x06\x16") for steps in STEPS), *((STEPS[0], separator) for separator in (":", "", " - "))],
)
def test_each_priority_goes_to_the_list_where_kombu_puts_it(
    make_store: MakeStore, steps: tuple[int, ...], separator: str
) -> None:
    """With any priority steps and separator, a message lands in the list that kombu would have pushed it to."""
    store = make_store(keys=Keys(separator=separator), steps=steps)
    kombu = Kombu(steps, separator)
    expected: dict[str, list[bytes]] = {}
    for number, priority in enumerate([*range(10), *range(10)]):
        store.delivery.offer("q", waiting(str(number), PAST_MS, priority=priority))
        expected.setdefault(kombu._q_for_pri("q", priority), []).append(f"body of {number}".encode())
    store.delivery.transfer("q")
    assert {name: popped(store.client, name) for name in expected} == expected
    left = {b"{delayq}:queues"} if store.layout == "redisson" else {b"delayq:{q}:order", b"{delayq}:queues"}
    assert contents(store.client).keys() == left


def test_a_priority_step_given_twice_doubles_no_message(make_store: MakeStore) -> None:
    """Where ``priority_steps`` name a step twice, each message is still pushed once."""
    store = make_store(steps=(0, 0, 3, 3))
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("j", PAST_MS, priority=4))
    store.delivery.transfer("q")
    assert (popped(store.client, "q"), popped(store.client, "{q}\x06\x163")) == ([b"body of i"], [b"body of j"])


def test_ready_lists_carry_the_key_prefix(make_store: MakeStore) -> None:
    """With ``global_keyprefix`` the lists are the prefixed ones that kombu reads."""
    store = make_store(keys=Keys("app:"))
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("j", PAST_MS, priority=9))
    store.delivery.transfer("q")
    assert (popped(store.client, "app:q"), popped(store.client, "app:{app:q}\x06\x169")) == (
        [b"body of i"],
        [b"body of j"],
    )
