"""Messages that are due in the same instant arrive in the order in which they were published."""

import random
from collections.abc import Iterable

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, popped, waiting

#: Ids whose own order has nothing to do with the order of publishing.
SHUFFLED = random.Random(7).sample(range(10**6), 5000)


def moved(store: DelayStore, offers: Iterable[Offer], per_call: int) -> list[str]:
    """Offers, transfers all, and returns the bodies in the order of a consumer."""
    waiting_offers = list(offers)
    for start in range(0, len(waiting_offers), per_call):
        store.delivery.offer("q", *waiting_offers[start : start + per_call])
    while store.delivery.transfer("q").more:
        pass
    return [body.decode() for body in popped(store.client, "q")]


def test_thousands_with_one_due_time_keep_their_order(make_store: MakeStore) -> None:
    """Over many offers and many transfers, thousands of messages with one due time keep their order."""
    store = make_store(transfer_batch=333)
    bodies = moved(store, (waiting(str(number), PAST_MS, str(number)) for number in SHUFFLED), 250)
    assert bodies == [str(number) for number in SHUFFLED]


def test_due_time_goes_before_the_order_of_publishing(make_store: MakeStore) -> None:
    """Messages are moved by due time, to the µs, and within one due time in the order of publishing.

    In Redisson's layout due times are of whole ms.
    """
    store = make_store(transfer_batch=50)
    step_ms = 0.001 if store.layout == "hash" else 1
    dues_ms = [PAST_MS + (number % 7) * step_ms for number in SHUFFLED[:1000]]
    numbered = list(enumerate(dues_ms))
    bodies = moved(store, (waiting(str(SHUFFLED[n]), due_ms, str(n)) for n, due_ms in numbered), 100)
    assert bodies == [str(n) for n, _ in sorted(numbered, key=lambda each: (each[1], each[0]))]


def test_a_repeated_message_keeps_its_first_place(store: DelayStore) -> None:
    """A second attempt does not move a message behind those that came between."""
    offers = [waiting(name, PAST_MS, name) for name in ("a", "b", "a", "c", "b")]
    assert moved(store, offers, 1) == ["a", "b", "c"]
