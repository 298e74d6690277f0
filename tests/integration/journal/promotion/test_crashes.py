"""Promoters and restores that are killed or stopped at any point: each row once, and none lost."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from celery_ext.journal.store import JournaledStore
from celery_ext.journal.worker import JournalWorker
from tests.support.conditions import until
from tests.support.journal.processes import Hold
from tests.support.journal.stores import DAY_MS, MakeJournaled, Promoter, addition, delivered, in_redis, offer, restored
from tests.support.store.keyspace import clock_ms

#: Dead clients leave transactions behind in PostgreSQL; promotions, losses and restores are tested with SQLite.
pytestmark = pytest.mark.parametrize("journal_url", ["postgres"], indirect=True)

#: Starts a journal worker in a thread of the test. It may be given the time of its lease, in s.
Work = Callable[..., JournalWorker]


@pytest.fixture
def work(make_journaled: MakeJournaled) -> Iterator[Work]:
    workers: list[JournalWorker] = []

    def start(lease_ttl: float = 0.5) -> JournalWorker:
        workers.append(JournalWorker(lambda: make_journaled(lease_ttl=lease_ttl, poll_interval=0.1)))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


def filled(store: JournaledStore) -> list[str]:
    """Puts rows into the journal, some of them due. Returns the ids."""
    now_ms = clock_ms(store.client)
    ids = [f"i{n:02}" for n in range(20)]
    store.journal.add([addition(each, now_ms + (n - 10) * 60_000) for n, each in enumerate(ids)])
    return ids


def is_promoted(store: JournaledStore, ids: list[str]) -> bool:
    """Whether no row waits in the journal any more, and none is held by the guard."""
    return not store.journal.get(ids) and not store.promotion.pushed(["q"])


@pytest.mark.parametrize(
    "where",
    [
        *("before promote", "after promote", "after mark", "after settle_rows"),
        *("after journal_heartbeat", "after next_heartbeat"),
    ],
)
def test_a_promoter_that_is_killed_leaves_its_rows_to_the_next(
    make_journaled: MakeJournaled, hold: Hold, work: Work, where: str
) -> None:
    """Wherever it dies, the next one promotes each row once, and takes it for no loss."""
    store = make_journaled()
    ids = filled(store)
    hold("promote", where).reached().kill()
    delivered(store)  # a row that came twice could not be told any more if it waited
    work()
    until(lambda: is_promoted(store, ids))
    assert Counter(delivered(store) + in_redis(store)) == Counter(ids)
    assert store.journal.epoch() == 1


def test_a_promoter_that_stood_still_is_fenced_off(make_journaled: MakeJournaled, hold: Hold, work: Work) -> None:
    """Stopped in the middle of a promotion, and gone on after another took leadership, it pushes nothing any more."""
    store = make_journaled()
    ids = filled(store)
    old = hold("promote", "before promote").reached()
    old.process.send_signal(signal.SIGSTOP)
    work()
    until(lambda: is_promoted(store, ids))
    assert Counter(delivered(store) + in_redis(store)) == Counter(ids)
    before = store.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    old.process.send_signal(signal.SIGCONT)
    old.go_on()
    until(lambda: store.client.info("commandstats")["cmdstat_evalsha"]["calls"] > before)
    old.kill()
    assert Counter(delivered(store) + in_redis(store)) == Counter(ids)


@pytest.mark.parametrize("where", ["before end_epoch", "after end_epoch"])
def test_a_promoter_that_dies_while_it_notes_a_loss(
    make_journaled: MakeJournaled, hold: Hold, work: Work, where: str
) -> None:
    """The loss is noted once, by it or by the next, and what was lost comes back."""
    store = make_journaled(journal="all")
    Promoter(store).heartbeat()
    due_ms = clock_ms(store.client) + 60_000
    store.delivery.offer("q", offer("a", due_ms), offer("b", due_ms))
    store.client.flushall()
    hold("promote", where).reached().kill()
    work()
    until(lambda: len(store.journal.unrestored()) == 1 and store.journal.watermarks().moved_to_ms)
    assert restored(store).restored == 2
    until(lambda: is_promoted(store, ["a", "b"]))
    assert in_redis(store) == ["a", "b"]
    assert store.journal.epoch() == 2


@pytest.mark.parametrize("where", ["before keep", "after wait_again", "before finish_restore"])
def test_a_restore_that_is_killed_begins_anew(make_journaled: MakeJournaled, hold: Hold, where: str) -> None:
    """Wherever it dies, the next one restores the rest, and nothing twice."""
    store = make_journaled(journal="all")
    Promoter(store).heartbeat()
    due_ms = clock_ms(store.client) + 60_000
    store.delivery.offer("q", *(offer(name, due_ms) for name in "abc"))
    store.client.flushall()
    promoter = Promoter(store).heartbeat()
    store.redis_alone.delivery.offer("q", offer("a", due_ms))
    hold("restore", where).reached().kill()
    promoter.promote()
    restored(store)
    promoter.promote()
    assert sorted(in_redis(store)) == ["a", "b", "c"]
    assert not store.journal.unrestored()


@pytest.mark.journey
def test_messages_come_back_by_themselves(make_journaled: MakeJournaled, hold: Hold) -> None:
    """With ``journal_restore="auto"`` a promoter that notices a loss fills Redis again."""
    store = make_journaled(journal="all")
    hold("promote", "before nothing", journal_restore="auto")
    until(lambda: store.journal.watermarks().moved_to_ms)
    due_ms = clock_ms(store.client) + 60_000
    store.delivery.offer("q", offer("near", due_ms), offer("far", due_ms + 30 * DAY_MS))
    store.client.flushall()
    until(lambda: in_redis(store) == ["near"])
    until(lambda: not store.journal.unrestored())
    until(lambda: [row.id for row in store.journal.get(["near", "far"])] == ["far"])


def test_one_promotes_and_the_next_follows_it(make_journaled: MakeJournaled, work: Work) -> None:
    """Of two workers one promotes; when it stops, the other begins to lead at once after the lease."""
    store = make_journaled()
    both = {work(lease_ttl=10), work(lease_ttl=10)}  # on a busy machine a promoter may stand still for some seconds
    [leading] = until(lambda: [worker for worker in both if worker.leading])
    assert store.promotion.promoter() == leading.name
    leading.stop()
    [other] = both - {leading}
    until(lambda: other.leading)
    [identity] = filled(store)[:1]
    until(lambda: not store.journal.get([identity]))
    assert identity in in_redis(store)
