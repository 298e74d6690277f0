"""Many at the same messages at once: each message ends in exactly one place."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import chain
from threading import Event

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import BODIES, DUE, DUPLICATES, FUTURE_MS, clock_ms, in_form, popped, waiting
from tests.support.store.together import together

#: Of each id two messages wait, so that duplicates are among them.
IDS = [f"id{n}" for n in range(300)]
CANCELLERS = 8


def cancel_all(store: DelayStore) -> list[Waiting]:
    """Cancels all ids, a few at a time, in an order of its own."""
    ids = random.sample(IDS, len(IDS))
    found = (store.lookup.cancel(["q"], ids[at : at + 5]) for at in range(0, len(ids), 5))
    return [message for each in found for messages in each.values() for message in messages]


def transfer(until: Event) -> Callable[[DelayStore], int]:
    def run(store: DelayStore) -> int:
        moved = 0
        while not until.is_set() and store.queues.size("q"):
            moved += store.delivery.transfer("q").moved
        return moved

    return run


def hurry(store: DelayStore) -> int:
    """Runs messages now, one at a time, in an order of its own. Returns how many."""
    words: Counter[str] = Counter()
    for identity in random.sample(IDS, len(IDS)):
        found = store.lookup.get(["q"], [identity]).get(identity, [])
        words.update(store.lookup.run_now("q", [Change(each, 0.0, each.body or b"") for each in found]))
    # In Redisson's layout, another message has an id as soon as the first of that id has left.
    assert words.keys() <= {"transferred", "not_delayed"} | ({"changed"} if store.layout == "redisson" else set())
    return words["transferred"]


def race(store: DelayStore) -> tuple[int, int]:
    """Checks that each message ends once. Returns how many were cancelled and how many transferred."""
    now_ms = clock_ms(store.client)
    bodies = [f"{identity} {n}" for identity in IDS for n in "12"]
    random.shuffle(bodies)
    for body in bodies:
        store.delivery.offer(
            "q", waiting(body.split()[0], now_ms + random.choice([0, 200, 1e9]) * random.random(), body)
        )
    stop = Event()
    try:
        *cancelled, moved, hurried = together(store, *[cancel_all] * CANCELLERS, transfer(stop), hurry)
    finally:
        stop.set()
    ended = [(message.body or b"").decode() for message in chain(*cancelled)]
    ready = [body.decode() for body in popped(store.client, "q")]
    assert len(ready) == moved + hurried
    assert Counter(ended + ready) == Counter(bodies)
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES, DUPLICATES)))
    return len(ended), len(ready)


def test_each_message_is_either_cancelled_once_or_transferred_once(store: DelayStore) -> None:
    """While many cancel the same ids, some messages fall due and others are run now, each ends in one place, once."""
    cancelled, transferred = zip(*(race(store) for _ in range(4)), strict=True)
    assert sum(cancelled)
    assert sum(transferred)


def test_a_change_is_of_what_was_read(store: DelayStore) -> None:
    """While several reschedule the same messages, none undoes what another did after it had read."""
    store.delivery.offer("q", *(waiting(identity, FUTURE_MS, "0") for identity in IDS[:50]))

    def reschedule(store: DelayStore) -> Counter[str]:
        words: Counter[str] = Counter()
        for identity in random.sample(IDS[:50], 50) * 4:
            [message] = store.lookup.get(["q"], [identity])[identity]
            body = b"%d" % (int(message.body or b"0") + 1)
            words.update(store.lookup.reschedule("q", [Change(message, FUTURE_MS + random.random(), body)]))
        return words

    words = sum(together(store, *[reschedule] * 4), Counter())
    assert words.keys() <= {"rescheduled", "changed"}
    counts = [int(each.body or b"") for each in store.scan.browse("q").messages]
    assert sum(counts) == words["rescheduled"]
    assert words.total() == 800
    assert store.queues.size("q") == 50
