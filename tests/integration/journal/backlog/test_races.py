"""Cancels and moves against a promotion that runs at that moment: each message has one outcome, and all agree on it."""

from collections import Counter
from collections.abc import Callable
from threading import Thread

import pytest

from celery_ext.journal import JournaledStore
from celery_ext.waiting import by_id
from tests.support.journal.stores import HOUR_MS, MakeJournaled, Promoter, addition
from tests.support.store.keyspace import clock_ms

#: Each outcome has a test of its own beside this one; here callers and a promoter meet at random.
pytestmark = pytest.mark.nightly

COUNT = 90


def sent(store: JournaledStore) -> list[str]:
    """Lets messages wait in the journal that are due to be promoted. Returns their ids."""
    ids = [f"i{n}" for n in range(COUNT)]
    due_ms = clock_ms(store.client) + HOUR_MS / 4
    store.journal.add([addition(identity, due_ms) for identity in ids])
    return ids


def against_promotion(make: MakeJournaled, work: Callable[[JournaledStore, list[str]], None]) -> JournaledStore:
    """Runs some work on all messages from both ends, a few ids at a time, while a promoter works."""
    store = make()
    # Before that nobody can promote a message early, where each queue has a marker.
    Promoter(store).heartbeat().leadership.enter("q")
    ids = sent(store)
    failures: list[BaseException] = []

    def run(own: JournaledStore, part: list[str]) -> None:
        try:
            for at in range(0, len(part), 3):
                work(own, part[at : at + 3])
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=(make(), part)) for part in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        Promoter(make()).heartbeat().promote()
    for thread in threads:
        thread.join()
    assert failures == []
    Promoter(make()).heartbeat().promote()
    return store


def test_a_message_is_cancelled_or_promoted(make_journaled: MakeJournaled) -> None:
    """All messages are cancelled, each by one of two callers, whatever a promoter does meanwhile."""
    outcomes = Counter[str]()

    def cancel(store: JournaledStore, ids: list[str]) -> None:
        outcomes.update(f"{one.id} {one.outcome}" for one in by_id.cancel(store, ids))

    store = against_promotion(make_journaled, cancel)
    assert outcomes == Counter(f"i{n} {word}" for n in range(COUNT) for word in ("cancelled", "not_delayed"))
    assert store.queues.size("q") == 0
    assert store.journal.get([f"i{n}" for n in range(COUNT)], None) == []


def test_what_is_sent_at_once_comes_once(make_journaled: MakeJournaled) -> None:
    """A message that is to run now comes to its queue once, whatever a promoter does meanwhile."""
    words = Counter[str]()
    store = against_promotion(make_journaled, lambda own, ids: words.update(w for _, w in by_id.run_now(own, ids)))
    bodies = store.client.lrange("q", 0, -1)
    assert len(bodies) == len({*bodies}) == COUNT == words["transferred"]
    assert store.queues.size("q") == 0


@pytest.mark.parametrize("hours", [1, 1000], ids=["near", "far"])
def test_what_is_rescheduled_waits_once(make_journaled: MakeJournaled, hours: int) -> None:
    """A message that is rescheduled waits once, until its new time; nothing goes back to the journal."""
    due_ms = clock_ms(make_journaled().client) + hours * HOUR_MS
    words = Counter[str]()
    store = against_promotion(
        make_journaled, lambda own, ids: words.update(w for _, w in by_id.reschedule(own, ids, due_ms))
    )
    found = list(by_id.browse(store, "q"))
    assert sorted(one.id for one in found) == sorted(f"i{n}" for n in range(COUNT))
    assert {one.due_ms for one in found} == {due_ms}
    assert {one.layout for one in found} <= ({"hash"} if hours == 1 else {"hash", "journal"})
    assert store.queues.size("q") == COUNT
