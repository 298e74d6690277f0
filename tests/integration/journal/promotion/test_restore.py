"""``restore``: what Redis lost waits again, and nothing else."""

import json
from typing import Any

import pytest

from celery_ext.journal import recovery
from celery_ext.journal.recovery import Restored, check
from celery_ext.journal.store import JournaledStore
from kombu_delayq.errors import InvalidOptions
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import DelayedQueue
from kombu_delayq.transfer.due_messages import DueMessages
from tests.support.conditions import until
from tests.support.journal.stores import (
    HOUR_MS,
    MakeJournaled,
    Promoter,
    addition,
    body_of,
    delivered,
    in_redis,
    offer,
    restored,
)
from tests.support.store.keyspace import clock_ms

SOON_MS, MINUTE_MS = 600_000.0, 60_000.0

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


@pytest.fixture
def now_ms(journaled_store: JournaledStore) -> float:
    """Redis's clock before the test."""
    return clock_ms(journaled_store.client)


def lose(store: JournaledStore) -> Promoter:
    """Empties Redis, and puts a promoter into leadership that has noticed it."""
    store.client.flushall()
    return Promoter(store).heartbeat()


def test_what_is_due_after_the_watermark_comes_back(journaled_store: JournaledStore, now_ms: float) -> None:
    """What was delivered before the loss stays away; what waited waits again, in Redis or in the journal."""
    store = journaled_store
    store.delivery.offer(
        "q", offer("gone", now_ms + 1), offer("soon", now_ms + SOON_MS), offer("later", now_ms + HOUR_MS)
    )
    promoter = Promoter(store)
    until(lambda: delivered(store) == ["gone"])
    promoter.heartbeat()
    promoter = lose(store)
    assert restored(store)[:5] == (2, 2, 0, 0, 0)
    assert promoter.promote()["promoted"] == 1
    assert in_redis(store) == ["soon"]
    assert [row.id for row in store.journal.get(["gone", "soon", "later"])] == ["later"]
    assert store.journal.unrestored() == []
    assert restored(store)[:5] == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(("overdue", "counts"), [("run", (2, 2, 0, 0, 0)), ("skip", (2, 1, 1, 0, 0))])
def test_what_came_due_meanwhile(
    journaled_store: JournaledStore, now_ms: float, overdue: str, counts: tuple[int, ...]
) -> None:
    """Messages whose due time passed while Redis was lost run now, or are left away."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("late", clock_ms(store.client) + 1), offer("soon", now_ms + SOON_MS))
    promoter = lose(store)
    done = restored(store, overdue=overdue)
    assert (done[:5], done.unsure) == (counts, 1)  # Redis may have delivered the late one
    promoter.promote()
    assert delivered(store) == (["late"] if overdue == "run" else [])
    assert in_redis(store) == ["soon"]


#: Options that let no message run that is a minute late.
STRICT = [{"overdue": policy, "max_lateness": 30.0} for policy in ("drop", "dead-letter")]


@pytest.mark.parametrize("options", [{}, *STRICT], ids=["run", "drop", "dead-letter"])
def test_what_came_due_meanwhile_may_be_buried(make_journaled: MakeJournaled, options: dict[str, Any]) -> None:
    """Overdue messages become dead letters, which say why, and come to their queue; none of them is too late there."""
    store = make_journaled(journal="all", **options)
    now_ms = clock_ms(store.client)
    Promoter(store).heartbeat()
    store.journal.lower_watermarks({"q": now_ms - MINUTE_MS})
    store.delivery.offer("q", offer("late", now_ms - MINUTE_MS), offer("soon", now_ms + SOON_MS))
    promoter = lose(store)
    assert restored(store, overdue="dead-letter", dead_letters="buried")[:5] == (2, 1, 0, 1, 0)
    promoter.promote()
    transfer(store, "q", "buried")
    assert store.client.llen("q") == 0
    [letter] = map(json.loads, store.client.lrange("buried", 0, -1))
    found = letter["properties"]["dead_letter"]
    assert (found["reason"], found["routing_key"]) == ("too late", "q")
    assert "before it was restored" in found["error"]
    assert store.client.sismember("{delayq}:dead_letters", "buried")


@pytest.mark.parametrize("overdue", ["skip", "dead-letter"])
def test_two_restores_at_once_count_a_message_once(
    journaled_store: JournaledStore, monkeypatch: pytest.MonkeyPatch, overdue: str
) -> None:
    """The one that takes the row out counts its message, and the other, which has read the same page, does not."""
    store, done = journaled_store, list[Restored]()
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("late", clock_ms(store.client) + 1))
    lose(store)
    read = recovery.rows_in_redis

    def other_meanwhile(*args: Any) -> set[int]:
        monkeypatch.setattr(recovery, "rows_in_redis", read)
        done.append(restored(store, overdue=overdue, dead_letters="buried"))
        return read(*args)

    monkeypatch.setattr(recovery, "rows_in_redis", other_meanwhile)
    done.append(restored(store, overdue=overdue, dead_letters="buried"))
    assert sum(one.skipped + one.dead_letters for one in done) == 1
    assert int(store.client.hget(store.keys.counts("buried"), "dead") or 0) == (overdue == "dead-letter")


@pytest.mark.parametrize("options", STRICT, ids=["drop", "dead-letter"])
def test_a_dead_letter_that_waited_for_a_promoter_is_not_too_late(
    make_journaled: MakeJournaled, options: dict[str, Any]
) -> None:
    """Where nobody promotes for long after a restore, the letters still come to their queue."""
    store = make_journaled(journal="all", **options)
    letters = store.options.dead_letter_queue
    store.journal.add([addition("late", clock_ms(store.client) - MINUTE_MS, letters)])
    Promoter(store).heartbeat().promote()
    transfer(store, letters)
    assert store.client.lrange(letters, 0, -1) == [body_of("late")]  # as it was, not buried once more


def transfer(store: JournaledStore, *queues: str) -> None:
    """Delivers what is due, as a transfer worker does."""
    for queue in queues:
        DueMessages(None).transfer_batch(store, DelayedQueue(queue, store.layout))


def test_a_restore_may_be_narrowed(journaled_store: JournaledStore, now_ms: float) -> None:
    """By queues and by due time; the loss stays open then, and the rest comes back later."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("a", now_ms + SOON_MS), offer("b", now_ms + 2 * SOON_MS))
    store.delivery.offer("p", offer("c", now_ms + SOON_MS))
    promoter = lose(store)
    assert restored(store, dry_run=True).restored == 3
    assert restored(store, queues=["q"], from_ms=now_ms + 2 * SOON_MS).restored == 1
    assert len(store.journal.unrestored()) == 1
    promoter.promote()
    assert (in_redis(store), in_redis(store, "p")) == (["b"], [])
    assert restored(store).restored == 2
    assert store.journal.unrestored() == []
    promoter.promote()
    assert (in_redis(store), in_redis(store, "p")) == (["a", "b"], ["c"])


def test_what_redis_still_has_is_not_doubled(journaled_store: JournaledStore, now_ms: float) -> None:
    """Of a Redis that was set back, what it has is left there; a later loss finds these messages again."""
    store = journaled_store
    promoter = Promoter(store).heartbeat()
    store.delivery.offer("q", offer("old", now_ms + SOON_MS))
    keys = {key: store.client.dump(key) for key in store.client.keys("*")}
    store.delivery.offer("q", offer("new", now_ms + 2 * SOON_MS))
    promoter.heartbeat().heartbeat()
    store.client.flushall()
    for key, value in keys.items():
        store.client.restore(key, 0, value)
    promoter = Promoter(store).heartbeat()
    assert restored(store)[:5] == (2, 1, 0, 0, 1)
    promoter.promote()
    assert in_redis(store) == ["old", "new"]
    promoter = lose(store)
    assert restored(store).restored == 2
    promoter.promote()
    assert in_redis(store) == ["old", "new"]


def test_messages_of_jvm_services_are_left_alone(journaled_store: JournaledStore, now_ms: float) -> None:
    """What a JVM service put into Redisson's layout is unknown to the journal: a restore changes none of it."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("ours", now_ms + SOON_MS))
    promoter = lose(store)
    entry = b"\0" * 16 + body_of("theirs")
    store.client.rpush(RedissonKeys(store.keys).listed("q"), entry)
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), {entry: now_ms + SOON_MS})
    assert restored(store).restored == 1
    promoter.promote()
    assert in_redis(store) == ["ours"]
    assert store.client.lrange(RedissonKeys(store.keys).listed("q"), 0, -1) == [entry]


def test_a_cancelled_message_stays_cancelled(journaled_store: JournaledStore, now_ms: float) -> None:
    """A message whose row was deleted before the loss does not come back, nor one that is cancelled after a restore."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", *(offer(name, now_ms + SOON_MS) for name in "abc"))
    store.journal.delete(["a"])
    promoter = lose(store)
    assert restored(store).restored == 2
    gone = store.journal.delete(["b"])
    assert set(store.promotion.claim_rows(gone).values()) == {"claimed"}
    promoter.promote()
    assert in_redis(store) == ["c"]


def test_publishing_goes_on_between_loss_and_restore(journaled_store: JournaledStore, now_ms: float) -> None:
    """Messages of the new epoch are in Redis, and a restore leaves them alone; one offered twice waits once."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("old", now_ms + SOON_MS))
    promoter = lose(store)
    store.delivery.offer("q", offer("new", now_ms + SOON_MS), offer("old", now_ms + SOON_MS))
    assert restored(store)[:5] == (1, 0, 0, 0, 1)
    promoter.promote()
    assert sorted(in_redis(store)) == ["new", "old"]


def test_a_second_loss_before_the_restore(journaled_store: JournaledStore, now_ms: float) -> None:
    """Two losses in a row are restored together, each with its own watermark."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("first", now_ms + SOON_MS))
    lose(store)
    store.delivery.offer("q", offer("second", now_ms + 2 * SOON_MS))
    promoter = lose(store)
    assert [one.epoch for one in store.journal.unrestored()] == [1, 2]
    assert restored(store).restored == 2
    promoter.promote()
    assert in_redis(store) == ["first", "second"]


def test_an_unknown_policy_is_an_error(journaled_store: JournaledStore) -> None:
    """The error names the policies that there are."""
    with pytest.raises(InvalidOptions, match="run, skip, dead-letter"):
        restored(journaled_store, overdue="drop")


def test_a_check_tells_what_redis_has_lost(journaled_store: JournaledStore, now_ms: float) -> None:
    """It names what Redis should have and has not, and nothing before that."""
    store = journaled_store
    store.journal.add([addition("c", now_ms + SOON_MS / 2)])
    store.delivery.offer("q", *(offer(name, now_ms + SOON_MS) for name in "abc"))
    Promoter(store).heartbeat().promote()
    assert {(page.missing, page.missing_ids) for page in check(store)} == {(0, ())}
    store.redis_alone.lookup.cancel(["q"], ["b"])
    assert [(page.looked, page.missing, page.missing_ids) for page in check(store)] == [(3, 1, ("b",))]
