"""Two Redis, or two key prefixes, with one journal: one has it, and the other is refused while that one is alive."""

import signal
from typing import NamedTuple

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore, JournalWorker, facts
from celery_ext.journal.errors import JournalUnavailable
from celery_ext.journal.leadership import NotLeading
from celery_ext.journal.state import state_of
from celery_ext.journal.status import losses
from kombu_delayq.store.keys import Keys
from tests.support.conditions import until
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, addition, in_redis, offer, restored
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


class Two(NamedTuple):
    """Two stores with one journal, of which the first has it."""

    first: JournaledStore
    second: JournaledStore


#: Where the second is: on another server, in another database of the server, or behind another key prefix.
SECOND = {"server": Keys(), "database": Keys(db=1), "prefix": Keys("b:")}


@pytest.fixture(params=SECOND)
def two(request: pytest.FixtureRequest, make_journaled: MakeJournaled, own_server: PrivateRedis) -> Two:
    """Their journal has all messages, and promoters restore what is lost."""
    options = {"journal": "all", "journal_restore": "auto", "lease_ttl": 0.5, "poll_interval": 0.1}
    second = {} if request.param == "server" else {"server": own_server}
    return Two(make_journaled(own_server, **options), make_journaled(**second, keys=SECOND[request.param], **options))


def grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the leader count as gone, as after ``ALIVE_S``."""
    monkeypatch.setattr(facts, "ALIVE_S", 0.0)


def test_another_is_refused_while_one_leads(two: Two) -> None:
    """It is not elected, no epoch ends, and the one that leads goes on; each message comes to its Redis once."""
    first, second = two
    first.journal.add([addition("a", clock_ms(first.client) + 60_000)])
    promoter = Promoter(first, "one").heartbeat().heartbeat()
    for _ in range(2):
        with pytest.raises(NotLeading, match="elsewhere"):
            Promoter(second, "two")
        promoter.heartbeat()
    assert promoter.promote()["promoted"] == 1
    assert (first.journal.epochs(), in_redis(first), in_redis(second)) == ([], ["a"], [])
    assert second.promotion.marker() is None


def test_whoever_looks_is_led_to_what_is_wrong(two: Two) -> None:
    """The state names who has the journal, also after a loss of that one; it speaks of no loss here, and no restore."""
    first, second = two
    first.delivery.offer("q", offer("a", clock_ms(first.client) + HOUR_MS))
    Promoter(first, "one").heartbeat().heartbeat()
    first.client.flushdb()
    Promoter(first, "one").heartbeat()
    state = state_of(second)
    assert (state.fault, state.has_lost, state.losses) == ("elsewhere", False, ())
    [text] = losses(state)
    assert f"{first.promotion.place()}, by one, heard" in text
    assert [title for _, title, _ in state.problems] == ["The journal belongs to another Redis"]
    assert (state_of(first).fault, len(state_of(first).losses)) == (None, 1)


def test_a_publisher_with_another_redis_is_refused(two: Two) -> None:
    """Its far messages, and with ``all`` its near ones, would run where the journal is promoted; nor may it purge."""
    first, second = two
    due_ms = clock_ms(first.client) + HOUR_MS
    Promoter(first, "one").heartbeat()
    for one in (offer("near", due_ms), offer("far", due_ms + 9 * DAY_MS)):
        with pytest.raises(JournalUnavailable, match="this journal is led from another Redis"):
            second.delivery.offer("q", one)
        assert second.journal.get([str(one.id)], None) == []
        first.delivery.offer("q", one)
    with pytest.raises(JournalUnavailable, match="this journal is led from another Redis"):
        second.queues.purge("q")
    assert first.queues.purge("q") == 2


def test_once_the_other_is_gone_it_is_taken_for_lost(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when a broker is replaced by an empty one elsewhere: a restore brings what was in the other."""
    first, second = two
    first.delivery.offer("q", offer("a", clock_ms(first.client) + HOUR_MS / 4))
    Promoter(first, "one").heartbeat().heartbeat()
    with monkeypatch.context() as later:
        grow_old(later)
        promoter = Promoter(second, "two").heartbeat()
    assert restored(second).restored == 1
    assert promoter.heartbeat().promote()["promoted"] == 1
    assert in_redis(second) == ["a"]
    with pytest.raises(NotLeading, match="elsewhere"):
        Promoter(first, "one")
    assert [one.epoch for one in first.journal.epochs()] == [1]


def test_workers_of_both_restore_nothing(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    """With ``auto``: the log says once who has the journal, and that one goes on in its epoch."""
    first, second = two
    first.delivery.offer("q", offer("a", clock_ms(first.client) + HOUR_MS / 4))
    workers = [JournalWorker(lambda: first), JournalWorker(lambda: second)]
    workers[0].start()
    until(lambda: first.journal.watermarks().moved_to_ms)
    workers[1].start()
    try:
        until(lambda: "nothing is promoted here: this journal is led from another Redis" in caplog.text)
        beaten = first.journal.heartbeat()
        until(lambda: first.journal.heartbeat() > beaten + 3, timeout_s=60.0)
    finally:
        for worker in workers:
            worker.stop(10.0)
    leader = first.journal.leader()
    assert leader is not None
    assert (leader.name, leader.is_alive) == ("", True)
    assert (first.journal.epochs(), in_redis(first), in_redis(second)) == ([], ["a"], [])
    assert caplog.text.count("nothing is promoted") == 1


@pytest.fixture
def store(make_journaled: MakeJournaled, own_server: PrivateRedis) -> JournaledStore:
    """A message of a day from now, and a promoter named *one* that has sent heartbeats."""
    made = make_journaled(own_server, journal="all")
    made.delivery.offer("q", offer("a", made.now_ms() + DAY_MS / 2))
    Promoter(made, "one").heartbeat().heartbeat()
    return made


def test_a_redis_that_was_emptied_is_noticed_by_any_process(store: JournaledStore) -> None:
    """FLUSHALL: the server is the same, so nobody else has the journal."""
    store.client.flushall()
    assert state_of(store).fault == "lost"
    Promoter(store, "two").heartbeat()
    assert [one.epoch for one in store.journal.unrestored()] == [1]


def test_a_server_that_comes_back_empty_is_noticed_by_who_led_it(
    store: JournaledStore, own_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once by the process that led there; by others once that one is silent, as it may lead another Redis."""
    own_server.stop(signal.SIGKILL)
    own_server.start()
    with pytest.raises(NotLeading, match="elsewhere"):
        Promoter(store, "two")
    Promoter(store, "one").heartbeat()
    assert [one.epoch for one in store.journal.unrestored()] == [1]
    store.client.flushall()
    own_server.stop(signal.SIGKILL)
    own_server.start()
    grow_old(monkeypatch)
    Promoter(store, "two").heartbeat()
    assert [one.epoch for one in store.journal.unrestored()] == [1, 2]


def test_a_server_that_comes_back_empty_is_noticed_at_once_after_a_tidy_end(
    store: JournaledStore, own_server: PrivateRedis, make_journaled: MakeJournaled
) -> None:
    """As when Redis and all processes are restarted: at the same address, nobody waits; at another one all do."""
    leader = store.journal.leader()
    assert leader is not None
    store.journal.resign(leader.token)
    own_server.stop(signal.SIGKILL)
    own_server.start()
    other = make_journaled(journal="all")
    with pytest.raises(NotLeading, match="elsewhere"):
        Promoter(other, "two")
    assert (state_of(store).fault, state_of(other).fault) == ("lost", "elsewhere")
    store.delivery.offer("q", offer("b", store.now_ms() + DAY_MS / 2))
    Promoter(store, "two").heartbeat()
    assert [one.epoch for one in store.journal.unrestored()] == [1]


@pytest.fixture
def copy(store: JournaledStore, make_journaled: MakeJournaled) -> JournaledStore:
    """Another Redis, which has all that the first had."""
    made = make_journaled(journal="all")
    for key in store.client.keys("*"):
        made.client.restore(key, 0, store.client.dump(key))
    return made


def test_after_a_failover_any_process_goes_on(copy: JournaledStore) -> None:
    """The id of the data is copied with them, so another process leads at once, and no epoch ends."""
    assert (state_of(copy).fault, copy.delivery.offer("q", offer("b", copy.now_ms() + DAY_MS / 2)).offered) == (None, 1)
    Promoter(copy, "two").heartbeat()
    assert copy.journal.epochs() == []


def test_a_copy_is_refused_while_the_original_is_led(store: JournaledStore, copy: JournaledStore) -> None:
    """As where Redis is split in two: of a copy and its original one has the journal, whichever goes on first."""
    promoter = Promoter(store, "one").heartbeat().heartbeat()
    with pytest.raises(NotLeading, match="elsewhere"):
        Promoter(copy, "two")
    assert state_of(copy).fault == "elsewhere"
    promoter.heartbeat()
    assert store.journal.epochs() == []
