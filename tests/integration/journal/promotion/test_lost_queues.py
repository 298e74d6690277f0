"""Where Redis has hash slots, single queues can lose their data; the others go on, and each row comes once."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.journal.keys import JournalKeys
from celery_ext.journal.leadership import NotLeading, PromoterLeadership
from celery_ext.journal.promotion import ALL
from celery_ext.journal.recovery import check
from celery_ext.journal.state import state_of
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.options import Options
from kombu_delayq.store.keys import Keys
from tests.support.journal.stores import DAY_MS, Promoter, addition, in_redis, offer, restored


@pytest.fixture
def store(slots_server: PrivateRedis, tmp_path: Path) -> Iterator[JournaledStore]:
    """A store whose rows are promoted a year before they are due."""
    options = Options(journal_url=f"sqlite:///{tmp_path}/journal.db", journal_lead=365 * 86_400)
    store = JournaledStore(redis.Redis(port=slots_server.port), SlotKeys(), (0, 3, 6, 9), options)
    yield store
    store.close()


def given(store: JournaledStore, queue: str, *ids: str) -> None:
    """Adds rows that are due in a day or more."""
    due_ms = store.now_ms() + DAY_MS
    store.journal.add([addition(name, due_ms + at, queue) for at, name in enumerate(ids)])


def lose(store: JournaledStore, queue: str) -> None:
    """Deletes all keys in the slot of a queue, as if its node came back without data."""
    store.client.delete(*list(store.client.scan_iter(f"*{{{queue}}}*")))


def test_a_lost_queue_is_restored_alone(store: JournaledStore) -> None:
    """Heartbeats notice it, its rows wait again and come once; rows of other queues are not even looked at."""
    promoter = Promoter(store)
    given(store, "a", "a1", "a2")
    given(store, "b", "b1")
    assert promoter.heartbeat().promote()["promoted"] == 3
    promoter.heartbeat()
    lose(store, "a")
    assert state_of(store).fault == "lost"
    with pytest.raises(NotLeading, match="lost"):
        promoter.heartbeat()
    successor = Promoter(store).heartbeat()
    assert store.journal.epoch() == 2
    assert store.journal.lost_in().get(1, []) == [("a", 1)]
    assert [loss.messages for loss in state_of(store).losses] == [2]
    assert restored(store)[:2] == (2, 2)
    assert successor.promote()["promoted"] == 2
    assert (in_redis(store, "a"), in_redis(store, "b")) == (["a1", "a2"], ["b1"])
    lose(store, "b")  # whose rows were given in the epoch before the last
    Promoter(store).heartbeat()
    assert store.journal.lost_in().get(2, []) == [("b", 1)]
    assert restored(store)[:2] == (1, 1)
    assert Promoter(store).promote()["promoted"] == 1
    assert (in_redis(store, "a"), in_redis(store, "b")) == (["a1", "a2"], ["b1"])
    assert sum(page.missing for page in check(store)) == 0


@pytest.mark.parametrize("restore", ["ask", "auto"])
@pytest.mark.parametrize("slots", [True, False])
def test_a_loss_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, slots: bool, restore: str) -> None:
    """Who notices a loss logs it, and reminds of it minutes later; the next leader, which logged nothing, at once."""
    said = "what Redis has lost is not restored yet"
    options = Options(
        journal_url=f"sqlite:///{tmp_path}/journal.db", journal_lead=365 * 86_400, journal_restore=restore
    )
    with PrivateRedis(slots=slots) as server, closing(server.client()) as client:
        store = JournaledStore(client, (SlotKeys if slots else Keys)(), (0, 3, 6, 9), options)
        with closing(store):
            store.journal.add([addition("a", store.now_ms() + DAY_MS)])
            Promoter(store).heartbeat().promote()
            client.flushall()
            Promoter(store).heartbeat()
            assert ("Redis has lost its data" in caplog.text, said in caplog.text) == (True, False)
            Promoter(store).heartbeat()
            assert said in caplog.text


def test_a_check_compares_the_queues_that_are_not_lost(store: JournaledStore) -> None:
    """Behind a loss of one queue, the others are compared as before, and what they miss is found."""
    promoter = Promoter(store)
    given(store, "a", "a1", "a2")
    given(store, "b", "b1", "b2")
    promoter.promote()
    lose(store, "a")
    assert [(page.queue, page.missing_ids) for page in check(store)] == [("a", ("a1", "a2")), ("b", ())]
    Promoter(store).heartbeat()
    assert [(page.queue, page.looked, page.missing) for page in check(store)] == [("b", 2, 0)]
    assert [*store.redis_alone.lookup.cancel(["b"], ["b2"])] == ["b2"]
    assert [(page.queue, page.missing_ids) for page in check(store)] == [("b", ("b2",))]
    restored(store)
    Promoter(store).promote()
    assert [(page.queue, page.missing_ids) for page in check(store)] == [("a", ()), ("b", ("b2",))]


def test_who_looks_for_lost_queues_may_die(store: JournaledStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promoter finds no marker of all, and dies before it has looked at the queues: the next one looks.

    A queue that is new has no marker. Only the lost marker of all shows that it may be lost.
    """
    Promoter(store).heartbeat()
    store.journal.add([addition("a1", store.now_ms() + DAY_MS, "a")], offered=True)
    store.client.flushall()

    def dies(*_: object, **__: object) -> int:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(PromoterLeadership, "_begin_anew", dies)
        with pytest.raises(SystemExit):
            Promoter(store)
    Promoter(store).heartbeat()
    assert store.journal.lost_in().get(1, []) == [("a", 1)]
    assert restored(store)[:2] == (1, 1)


def test_what_a_new_queue_lost_is_cancelled(store: JournaledStore) -> None:
    """A message that Redis has lost with the marker of all is cancelled, also if its queue had no marker yet."""
    Promoter(store).heartbeat()
    store.journal.add([addition("a1", store.now_ms() + DAY_MS, "a")], offered=True)
    store.client.flushall()
    assert [*store.lookup.cancel(["a"], ["a1"])] == ["a1"]


def test_who_notices_a_lost_queue_may_die_half_way(store: JournaledStore) -> None:
    """A marker of the next epoch without its end in the journal: the next promoter ends it, once."""
    promoter = Promoter(store)
    given(store, "a", "a1")
    promoter.promote()
    lose(store, "a")
    found = store.promotion.elect(store.journal.id, promoter.leadership.token, 2, 0, ["a"], anew=True)
    assert found["a"].word == "elected"
    Promoter(store).heartbeat()
    Promoter(store).heartbeat()
    assert (store.journal.epoch(), store.journal.lost_in().get(1, [])) == (2, [("a", 1)])


def test_where_nobody_knows_what_was_lost_all_is_compared(store: JournaledStore) -> None:
    """A marker of the next epoch in the slot of the fleet alone ends the epoch for all queues, as its log says."""
    promoter = Promoter(store)
    given(store, "a", "a1")
    promoter.promote()
    found = store.promotion.elect(store.journal.id, promoter.leadership.token, 2, 0, [ALL], anew=True)
    assert found[ALL].word == "elected"
    Promoter(store).heartbeat()
    assert (store.journal.epoch(), store.journal.lost_in().get(1, [])) == (2, [("a", 1)])


def test_a_queue_that_was_set_back_is_lost(store: JournaledStore) -> None:
    """A marker that is two heartbeats behind, such as that of a replica, shows an older state of the queue."""
    promoter = Promoter(store)
    given(store, "a", "a1")
    promoter.promote()
    promoter.heartbeat()
    marker = JournalKeys(store.keys).journal("a")
    old = store.client.dump(marker)
    promoter.heartbeat().heartbeat()
    store.client.restore(marker, 0, old, replace=True)
    with pytest.raises(NotLeading, match="behind"):
        promoter.heartbeat()
    Promoter(store).heartbeat()
    assert store.journal.lost_in().get(1, []) == [("a", 1)]


def test_the_slot_of_the_fleet_may_be_lost(store: JournaledStore) -> None:
    """Promotion goes on under a later token, no row is lost by that, and the names of the queues are known again."""
    promoter = Promoter(store)
    given(store, "a", "a1")
    promoter.promote()
    store.client.delete(*list(store.client.scan_iter("*{delayq}*")))
    with pytest.raises(NotLeading, match="lost"):
        promoter.heartbeat()
    successor = Promoter(store).heartbeat()
    assert successor.leadership.token > promoter.leadership.token
    assert (store.journal.epoch(), store.queues.registered()) == (1, ["a"])
    given(store, "a", "a2")
    with pytest.raises(NotLeading, match="superseded"):
        promoter.promote()
    assert successor.promote()["promoted"] == 1


def test_a_row_that_is_cancelled_before_its_queue_is_taken(store: JournaledStore) -> None:
    """The promoter reads rows again once it has a queue, so claims before that are needless, and leave nothing."""
    given(store, "a", "a1", "a2")
    promoter, promotable = Promoter(store), store.journal.promotable

    def cancelled_meanwhile(*args: object) -> object:
        found = promotable(*args)  # type: ignore[arg-type]
        assert list(store.lookup.cancel(["a"], ["a1"])) == ["a1"]
        return found

    store.journal.promotable = cancelled_meanwhile  # type: ignore[method-assign,assignment]
    assert promoter.promote()["promoted"] == 1
    assert in_redis(store, "a") == ["a2"]
    assert not store.client.exists(JournalKeys(store.keys).journal_guard("a"))


def test_a_queue_without_a_slot_of_its_own_stops_no_other(
    store: JournaledStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A far message for a name that a cluster refuses is refused; rows of a plain server stay, and the log says so."""
    far = offer("refused", store.now_ms() + 9 * DAY_MS)
    with pytest.raises(InvalidQueueName):
        store.delivery.offer("a}b", far)
    assert store.journal.get(["refused"], None) == []
    given(store, "a}b", "stays")
    given(store, "c", "comes")
    promoter = Promoter(store)
    for promoted in (1, 0):
        assert promoter.heartbeat().promote()["promoted"] == promoted
    assert in_redis(store, "c") == ["comes"]
    assert [row.id for row in store.journal.get(["stays"])] == ["stays"]
    assert caplog.text.count("rows of queue 'a}b' stay in the journal: the queue 'a}b' cannot be used in Redis") == 1
    Promoter(store).heartbeat().promote()
