"""To which of a queue's lists a message goes, by its priority."""

from collections.abc import Callable

import pytest

from celery_ext.dead_letters.store import Letter, LetterStore
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import PageId, Requeued
from tests.support.store.consuming import fetch, lives
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import begun, jobs, now
from tests.support.store.keyspace import PAST_MS, contents, only, popped, waiting
from tests.support.store.priorities import SOME_STEPS, STEPS, Kombu


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


def requeued(store: DelayStore, priority: int) -> None:
    """Lets a consumer take a message, and puts it back."""
    lives(store)
    store.client.lpush("app:q", "sent")
    [taken] = fetch(store)
    store.fetching.requeue([Requeued(taken.tag, "q", priority, b"sent")], "next")


def run_now(store: DelayStore, priority: int) -> None:
    """Runs a waiting message at once."""
    store.delivery.offer("q", waiting("i", priority=priority))
    store.lookup.run_now("q", [Change(only(store, "i"), 0.0, b"sent")])


def replayed(store: DelayStore, priority: int) -> None:
    """Sends a dead letter back to its queue."""
    store.client.lpush("app:dead", "letter")
    store.part(LetterStore).replay("dead", "app:dead", {0: Letter(b"letter", "queue", "q", priority, b"sent")})


def transferred(store: DelayStore, priority: int) -> None:
    """Lets a due message go."""
    store.delivery.offer("q", waiting("i", PAST_MS, "sent", priority))
    store.delivery.transfer("q")


#: What brings a message to a list of its queue.
SENDS: dict[str, Callable[[DelayStore, int], object]] = {
    "transfer": transferred,
    "give_back": lambda store, priority: store.delivery.give_back("q", priority, "sent"),
    "put": lambda store, priority: store.delivery.put("q", PageId(f"{priority}", 1), [now("i", "sent", priority)]),
    "requeue": requeued,
    "run_now": run_now,
    "replay": replayed,
    "enqueue": lambda store, priority: jobs(store).enqueue("q", begun(store), [now(f"{priority}", "sent", priority)]),
}


@pytest.mark.parametrize("steps", SOME_STEPS)
@pytest.mark.parametrize("send", SENDS.values(), ids=list(SENDS))
def test_whatever_sends_a_message_finds_its_list(
    make_store: MakeStore, send: Callable[[DelayStore, int], object], steps: tuple[int, ...]
) -> None:
    """With any priority steps, prefix and separator, a message goes to the list where kombu puts its priority."""
    store, kombu = make_store(keys=Keys("app:", separator=":"), steps=steps), Kombu(steps, ":", "app:")
    for priority in range(10):
        send(store, priority)
        assert popped(store.client, kombu._q_for_pri("q", priority)) == [b"sent"]


def test_a_priority_step_given_twice_doubles_no_message(make_store: MakeStore) -> None:
    """Where ``priority_steps`` name a step twice, each message is still pushed once."""
    store = make_store(steps=(0, 0, 3, 3))
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("j", PAST_MS, priority=4))
    store.delivery.transfer("q")
    assert (popped(store.client, "q"), popped(store.client, "{q}\x06\x163")) == ([b"body of i"], [b"body of j"])
