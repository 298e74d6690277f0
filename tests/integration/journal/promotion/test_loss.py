"""A Redis that has lost its data: noticed, and nothing else is taken for it."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal.facts import Watermarks
from celery_ext.journal.keys import JournalKeys
from celery_ext.journal.leadership import NotLeading
from celery_ext.journal.promotion import ALL
from celery_ext.journal.state import state_of
from celery_ext.journal.status import losses
from celery_ext.journal.store import JournaledStore
from celery_ext.journal.worker import JournalWorker, RowPromoter, compare
from celery_ext.waiting import by_id
from tests.support.conditions import until
from tests.support.journal.stores import (
    DAY_MS,
    HOUR_MS,
    MakeJournaled,
    Promoter,
    addition,
    delivered,
    in_redis,
    offer,
    restored,
)
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


def test_a_new_journal_is_no_loss(journaled_store: JournaledStore) -> None:
    """The first promoter of a journal writes the marker, and later ones find it."""
    store = journaled_store
    for _ in range(3):
        Promoter(store).heartbeat().heartbeat()
    assert store.journal.epoch() == 1
    assert store.journal.unrestored() == []
    marker = store.promotion.marker()
    assert marker is not None
    assert (marker.id, marker.epoch) == (store.journal.id, 1)
    assert marker.heartbeat == store.journal.heartbeat() - 1


def test_an_empty_redis_ends_the_epoch(journaled_store: JournaledStore, caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat finds no marker; the next promoter begins an epoch, and the old one keeps its watermarks."""
    store = journaled_store
    promoter = Promoter(store).heartbeat()
    moved_to_ms = store.journal.watermarks().moved_to_ms
    store.client.flushall()
    with pytest.raises(NotLeading, match="lost"):
        promoter.heartbeat()
    store.journal.add([addition("a", clock_ms(store.client))])
    with pytest.raises(NotLeading, match="lost"):
        promoter.promote()
    Promoter(store).heartbeat()
    [lost] = store.journal.unrestored()
    assert (lost.epoch, lost.watermarks.moved_to_ms, store.journal.epoch()) == (1, moved_to_ms, 2)
    assert "Redis has lost its data: it is empty" in caplog.text


def test_an_older_state_ends_the_epoch(journaled_store: JournaledStore, caplog: pytest.LogCaptureFixture) -> None:
    """A marker that is two heartbeats behind shows that Redis was set back, to the leader and to the next one."""
    store = journaled_store
    promoter = Promoter(store).heartbeat()
    old = store.client.dump("{delayq}:journal")
    promoter.heartbeat().heartbeat()
    store.client.restore("{delayq}:journal", 0, old, replace=True)
    with pytest.raises(NotLeading, match="behind"):
        promoter.heartbeat()
    Promoter(store).heartbeat()
    assert [one.epoch for one in store.journal.unrestored()] == [1]
    assert "it was set back to an older state" in caplog.text


def test_a_cancel_after_a_loss_that_nobody_has_noticed_says_so(journaled_store: JournaledStore) -> None:
    """Redis was set back to before a message came: its row is all there is of it, and the cancel takes that."""
    store = journaled_store
    due_ms = clock_ms(store.client) + HOUR_MS
    store.delivery.offer("q", offer("before", due_ms))
    promoter = Promoter(store).heartbeat()
    key = JournalKeys(store.keys).journal("q")
    state = store.client.hgetall(key)
    store.delivery.offer("q", offer("since", due_ms), offer("delivered", 0.0))
    delivered(store)
    promoter.heartbeat().heartbeat().heartbeat()
    store.redis_alone.lookup.cancel(["q"], ["since"])
    store.client.hset(key, mapping=state)
    assert set(store.lookup.cancel(["q"], ["before", "since", "delivered"])) == {"before", "since"}
    assert store.journal.get(["before", "since", "delivered"], None) == []


@pytest.mark.parametrize("kind", ["far", "all"])
def test_a_loss_promises_what_a_restore_does(
    make_journaled: MakeJournaled, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``far``, log and status say that messages are lost which were published into Redis."""
    store = make_journaled(journal=kind)
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("near", clock_ms(store.client) + HOUR_MS))
    store.client.flushall()
    Promoter(store).heartbeat()
    status = list(losses(state_of(store)))
    lost = "published into Redis alone"
    assert (lost in caplog.text, any(lost in line for line in status)) == (
        (True, True) if kind == "far" else (False,) * 2
    )
    assert restored(store).restored == (0 if kind == "far" else 1)


def test_a_database_that_was_set_back_is_told(
    journaled_store: JournaledStore, caplog: pytest.LogCaptureFixture
) -> None:
    """With an older state of the journal promotion goes on, and the log says what may have happened."""
    store = journaled_store
    Promoter(store).heartbeat().heartbeat()
    store.client.hset("{delayq}:journal", "heartbeat", 1000)
    Promoter(store).heartbeat()
    assert store.journal.heartbeat() == 1001
    assert "the journal's database was set back" in caplog.text


def test_a_token_that_the_database_has_forgotten_is_passed_by(journaled_store: JournaledStore) -> None:
    """Behind a marker with a token ahead of the journal's and of Redis's clock, the next promoter leads."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.client.hset("{delayq}:journal", "token", 99_999_999_999_999)
    assert Promoter(store).heartbeat().leadership.token == 100_000_000_000_000


def test_the_redis_of_another_journal_is_left_alone(journaled_store: JournaledStore) -> None:
    """A marker with another id is no loss, and nobody is elected."""
    store = journaled_store
    store.promotion.elect("another", 1, 1, 5, [ALL], anew=True)
    with pytest.raises(NotLeading, match="other"):
        Promoter(store)
    marker = store.promotion.marker()
    assert marker is not None
    assert marker.id == "another"
    assert store.journal.epochs() == []


def test_the_watermark_follows_the_overdue_heads(journaled_store: JournaledStore) -> None:
    """It is Redis's time, and the due time of the head for a queue that has one overdue."""
    store = journaled_store
    now_ms = clock_ms(store.client)
    store.delivery.offer("q", offer("a", now_ms - 5000), offer("b", now_ms + HOUR_MS / 3))
    promoter = Promoter(store).heartbeat()
    found = store.journal.watermarks()
    assert now_ms <= found.moved_to_ms <= clock_ms(store.client)
    assert dict(found.lagging) == {"q": now_ms - 5000}
    assert delivered(store) == ["a"]
    promoter.heartbeat()
    assert store.journal.watermarks().of("q") > now_ms


def test_rows_that_come_late_hold_the_watermark(journaled_store: JournaledStore) -> None:
    """A row that is promoted after its due time is not behind the watermark before it has left Redis."""
    store = journaled_store
    promoter = Promoter(store).heartbeat()
    due_ms = clock_ms(store.client) - HOUR_MS
    store.journal.add([addition("late", due_ms)])
    rows = RowPromoter(store, promoter.leadership, lambda: True)
    promoter.leadership.heartbeat_s = HOUR_MS  # no heartbeat
    promoter.leadership.keep()
    assert rows.promote_due()["promoted"] == 1
    assert store.journal.watermarks().of("q") == due_ms
    store.client.flushall()
    promoter = Promoter(store)
    [lost] = store.journal.unrestored()
    assert [row.id for row in store.journal.lost(lost.epoch, "q")] == ["late"]


def test_rows_whose_promotion_a_loss_has_cut_are_not_lost(journaled_store: JournaledStore) -> None:
    """Rows that were pushed to a Redis that then lost them, and not marked yet, go to the next one."""
    store = journaled_store
    store.journal.add([addition(name, clock_ms(store.client) + 60_000) for name in "ab"])
    promoter, mark = Promoter(store).heartbeat(), store.journal.mark

    def lost_before(*args: object) -> object:
        store.client.flushall()
        Promoter(store)
        return mark(*args)  # type: ignore[arg-type]

    store.journal.mark = lost_before  # type: ignore[method-assign,assignment]
    promoter.promote()
    with pytest.raises(NotLeading, match="superseded"):
        promoter.heartbeat()
    store.journal.mark = mark  # type: ignore[method-assign]
    assert [row.id for row in store.journal.get(["a", "b"])] == ["a", "b"]
    assert Promoter(store).heartbeat().promote()["promoted"] == 2
    assert in_redis(store) == ["a", "b"]


def copy_database(source: Path, target: Path) -> None:
    """Copies a journal in use over another, as `.backup` and `.restore` do."""
    with closing(sqlite3.connect(source)) as given, closing(sqlite3.connect(target)) as taken:
        given.backup(taken)


def promoted(store: JournaledStore, *ids: str) -> None:
    """Adds rows and promotes them, and then the guard keeps their numbers."""
    store.journal.add([addition(each, store.now_ms() + DAY_MS) for each in ids])
    assert {word for _, word in by_id.run_now(store, ids)} == {"transferred"}


def comes_to_redis(store: JournaledStore, *ids: str) -> bool:
    """Adds rows that are due soon, and promotes. Returns whether Redis has them then."""
    store.journal.add([addition(each, store.now_ms() + 60_000) for each in ids])
    promoter = Promoter(store).heartbeat()
    try:
        RowPromoter(store, promoter.leadership, lambda: True).recover()
    except NotLeading:  # as a worker does
        promoter = Promoter(store).heartbeat()
    promoter.promote()
    return set(ids) <= set(in_redis(store))


@pytest.mark.parametrize("heartbeats", [0, 3])
def test_numbers_that_a_restored_database_gives_again_are_new_to_the_guard(
    journaled_store: JournaledStore, tmp_path: Path, heartbeats: int
) -> None:
    """Rows published after a backup was put back come to Redis, whether or not a heartbeat shows that it is older."""
    store, copy = journaled_store, tmp_path / "copy.db"
    database = Path(str(store.journal.engine.url.database))
    store.delivery.offer("q", offer("of a queue that is known", store.now_ms() + DAY_MS))
    promoter = Promoter(store).heartbeat()
    copy_database(database, copy)
    promoted(store, "a", "b", "c")
    for _ in range(heartbeats):
        promoter.heartbeat()
    copy_database(copy, database)
    assert comes_to_redis(store, "d")
    assert comes_to_redis(store, "e", "f", "g")


def test_another_database_in_the_place_of_a_journal_begins_with_an_empty_guard(
    journaled_store: JournaledStore, make_journaled: MakeJournaled, tmp_path: Path
) -> None:
    """After the marker was deleted, as the page says, the rows of the new journal come to Redis."""
    Promoter(journaled_store).heartbeat()
    promoted(journaled_store, "a", "b", "c")
    store = make_journaled(journal="all", journal_url=f"sqlite:///{tmp_path}/another.db")
    with pytest.raises(NotLeading, match="other"):
        Promoter(store)
    store.client.delete(JournalKeys(store.keys).journal())
    assert comes_to_redis(store, "d", "e", "f")


def test_a_lease_that_is_gone_is_not_anothers(make_journaled: MakeJournaled) -> None:
    """FLUSHALL takes the lease along: the promoter takes it again at once, and notices the loss."""
    store = make_journaled(journal="all", lease_ttl=300.0, poll_interval=0.1)
    worker = JournalWorker(lambda: make_journaled(journal="all", lease_ttl=300.0, poll_interval=0.1))
    store.delivery.offer("q", offer("a", store.now_ms() + DAY_MS))
    worker.start()
    try:
        until(lambda: store.promotion.marker("q"))
        until(lambda: store.journal.watermarks().moved_to_ms)
        store.client.flushall()
        until(store.journal.unrestored, timeout_s=60.0)
    finally:
        worker.stop()


def compared(promoter: Promoter) -> Promoter:
    """Compares until the promoter is sure what Redis has, as a worker does."""
    while promoter.heartbeat().leadership.unverified:
        list(compare(promoter.store, promoter.leadership))
    return promoter


def restart(server: PrivateRedis) -> None:
    """Ends a Redis, which comes back with what it had saved last."""
    server.stop(signal.SIGKILL)
    server.start()


@pytest.fixture
def restarted(make_journaled: MakeJournaled, own_server: PrivateRedis) -> JournaledStore:
    """A store with a journal of all messages, over a Redis that the test may restart."""
    return make_journaled(own_server, journal="all")


def test_a_loss_that_is_shorter_than_a_heartbeat_is_noticed(
    restarted: JournaledStore, own_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that lost the last writes, and no heartbeat, is compared with the journal, also by the next promoter."""
    store = restarted
    store.delivery.offer("q", offer("kept", store.now_ms() + DAY_MS / 4), offer("due", store.now_ms() + 1))
    promoter = Promoter(store).heartbeat().heartbeat()
    until(lambda: delivered(store) == ["due"])
    promoter.heartbeat()
    store.client.save()
    lost = [offer(name, store.now_ms() + 60_000) for name in "abc"]
    store.delivery.offer("q", *lost, offer("soon", store.now_ms() + 1))
    restart(own_server)
    compared(promoter)
    assert "Redis has lost data: 4 messages are missing" in caplog.text
    [loss] = state_of(store).losses
    assert (loss.messages, store.journal.epoch()) == (4, 1)
    assert {row.id for row in store.journal.missing("q")} == {"a", "b", "c", "soon"}
    assert restored(store)[:2] == (4, 4)
    Promoter(store).heartbeat().promote()
    assert delivered(store) == ["due", "soon"]
    assert in_redis(store) == ["a", "b", "c", "kept"]
    assert state_of(store).losses == []


def test_a_restart_that_lost_nothing_is_no_loss(restarted: JournaledStore, own_server: PrivateRedis) -> None:
    """What is not due yet is all there, so what was delivered meanwhile is not taken for lost."""
    store = restarted
    store.delivery.offer("q", offer("a", store.now_ms() + DAY_MS), offer("due", store.now_ms() + 1))
    promoter = Promoter(store).heartbeat()
    until(lambda: delivered(store) == ["due"])
    store.client.save()
    restart(own_server)
    assert promoter.heartbeat().leadership.unverified
    compared(promoter)
    assert (state_of(store).losses, store.journal.epochs(), promoter.heartbeat().leadership.unverified) == ([], [], {})


def test_a_restarted_server_does_not_count_as_seen_without_the_database(
    restarted: JournaledStore, own_server: PrivateRedis
) -> None:
    """Nobody has compared it, so what it may have lost is not taken for delivered."""
    store = restarted
    leadership = Promoter(store).heartbeat().leadership
    leadership.look_on(store)
    seen = leadership.seen
    store.client.save()
    restart(own_server)
    leadership.look_on(store)
    assert leadership.seen == seen
    with pytest.raises(NotLeading, match="lost"):
        store.client.flushall() and leadership.look_on(store)
    store.journal.raise_watermarks(leadership.token, seen)
    assert store.journal.watermarks() == seen
    later = Watermarks(seen.moved_to_ms + 1)
    for token, marks in ((leadership.token - 1, later), (leadership.token, Watermarks(seen.moved_to_ms - 1))):
        store.journal.raise_watermarks(token, marks)
        assert store.journal.watermarks() == seen


def test_what_is_published_and_delivered_after_a_loss_comes_once(journaled_store: JournaledStore) -> None:
    """Publishers see that the marker is gone: those messages belong to the epoch after the loss."""
    store = journaled_store
    store.delivery.offer("q", offer("lost", store.now_ms() + 60_000))
    promoter = Promoter(store).heartbeat().heartbeat()
    store.client.flushall()
    store.delivery.offer("q", offer("since", store.now_ms() + 1), offer("waits", store.now_ms() + 60_000))
    until(lambda: delivered(store) == ["since"])
    with pytest.raises(NotLeading, match="lost"):
        promoter.heartbeat()
    promoter = Promoter(store).heartbeat()
    assert restored(store)[:2] == (1, 1)
    promoter.promote()
    assert (delivered(store), in_redis(store)) == (["since"], ["lost", "waits"])
