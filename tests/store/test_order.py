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
