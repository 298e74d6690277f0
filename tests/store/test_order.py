"""Messages that are due in the same instant arrive in the order in which they were published."""

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from celery_ext.journal.promotion import Promotion, Row
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer, PageId
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import begun, jobs
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, popped, waiting
from tests.support.store.layouts import hash_only
from tests.support.store.promoting import JOURNAL_ID, elected

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


def promoted(store: DelayStore, page: Sequence[Offer]) -> object:
    """Promotes messages as rows of a journal."""
    rows = [Row(int(one.id), "q", str(one.id), float(one.due), one.priority, b"") for one in page]
    return store.part(Promotion).promote(JOURNAL_ID, elected(store), rows)


#: Ways to store a page.
WAYS: dict[str, Callable[[DelayStore, Sequence[Offer]], object]] = {
    "offer": lambda store, page: store.delivery.offer("q", *page),
    "put": lambda store, page: store.delivery.put("q", PageId("s", len(page)), page),
    "enqueue": lambda store, page: jobs(store).enqueue("q", begun(store), page),
    "promote": promoted,
}


@hash_only
@pytest.mark.parametrize("way", WAYS)
def test_messages_of_one_due_time_take_few_commands(store: DelayStore, way: str) -> None:
    """The marks of a page are counted at once, and its messages are stored at once, in their order."""
    page = [waiting(str(number), FUTURE_MS + number // 100) for number in SHUFFLED[:200]]
    expected = [str(one.id) for one in sorted(page, key=lambda one: float(one.due))]
    WAYS[way](store, [waiting("-1", FUTURE_MS)])
    store.client.config_resetstat()
    WAYS[way](store, page)
    calls = {name: found["calls"] for name, found in store.client.info("commandstats").items()}
    assert {name: count for name, count in calls.items() if count > 50} == {}
    assert [one.id for one in by_id.browse(store, "q") if one.id != "-1"] == expected
