"""Callers that are killed between two steps of a cancel or of a move: each message has one outcome all the same."""

import json
from collections import Counter

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore, worker
from celery_ext.waiting import by_id
from tests.support.journal.callers import die_while_calling
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, offer, restored
from tests.support.store.keyspace import clock_ms

#: A caller that dies leaves a transaction behind in PostgreSQL.
pytestmark = pytest.mark.parametrize("journal_url", ["postgres"], indirect=True)

#: Places of a cancel of a message in Redis, and of one in the journal, which is cancelled once its row is deleted.
NEAR = ("before delete", "after delete", "after cancel")
FAR = ("before delete", "after delete", "after claim_rows")
#: Places of a move within the journal, and of one within Redis, whose row follows it.
LATER = ("before claim_rows", "after claim_rows", "after replace", "after claim_rows 2")
PUT_OFF = ("before follow", "after follow", "after reschedule")
#: Places of a move from the journal to Redis.
NEARER = ("before promote", "after promote", "after mark", "after reschedule")


@pytest.fixture(autouse=True)
def _no_wait_for_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of the dead are dropped by the next promotion, not after a minute: no other caller stands still here."""
    monkeypatch.setattr(worker, "CLAIMED_MS", 0.0)


def waiting(store: JournaledStore) -> Counter[str]:
    """Counts the waiting messages by task id."""
    return Counter(json.loads(one.body or b"")["headers"]["id"] for one in by_id.browse(store, "q"))


def sent(store: JournaledStore, ids: list[str]) -> None:
    """Sends a message for each id, which names whether it is near or far."""
    now_ms = clock_ms(store.client)
    dues = {"near": now_ms + 2 * HOUR_MS, "far": now_ms + 9 * DAY_MS}
    store.delivery.offer("q", *(offer(identity, dues[identity.split(": ")[1]]) for identity in ids))


def all_promoted(make: MakeJournaled) -> Counter[str]:
    """Lets everything come to Redis. Returns the messages that wait there, by task id."""
    for _ in range(2):  # a promoter first drops old claims
        Promoter(make(journal="all", journal_lead=90 * DAY_MS / 1000)).heartbeat().promote()
    store = make(journal="all")
    assert store.journal.browse("q") == []
    return Counter(json.loads(one.body or b"")["headers"]["id"] for one in by_id.browse(store.redis_alone, "q"))


def test_a_message_whose_cancel_died_waits_or_is_cancelled(
    make_journaled: MakeJournaled, redis_server: PrivateRedis, journal_url: str
) -> None:
    """It waits once or is gone, the next cancel finds what waits, and nothing of it comes back after a loss."""
    store = make_journaled(journal="all")
    Promoter(store).heartbeat()
    ids = [*(f"cancel: near: {where}" for where in NEAR), *(f"cancel: far: {where}" for where in FAR)]
    sent(store, ids)
    die_while_calling(redis_server, {"journal_url": journal_url, "journal": "all"}, dict.fromkeys(ids, 0.0))
    left = ["cancel: near: before delete", "cancel: near: after delete", "cancel: far: before delete"]
    assert waiting(store) == Counter(left)
    assert all_promoted(make_journaled) == Counter(left)
    assert {one.outcome for one in by_id.cancel(store, left)} == {"cancelled"}
    store.client.flushall()
    promoter = Promoter(store).heartbeat()
    assert restored(store).restored == 0
    promoter.promote()
    assert not waiting(store)


def test_a_message_whose_move_died_waits_once(
    make_journaled: MakeJournaled, redis_server: PrivateRedis, journal_url: str
) -> None:
    """At its old or its new time it comes once, also when Redis loses its data afterwards."""
    store = make_journaled(journal="all")
    promoter = Promoter(store).heartbeat()
    now_ms = clock_ms(store.client)
    due_ms = {
        **{f"reschedule: far: {where}": now_ms + 30 * DAY_MS for where in LATER},
        **{f"reschedule: near: {where}": now_ms + 30 * DAY_MS for where in PUT_OFF},
        **{f"reschedule: far: {where}": now_ms + HOUR_MS for where in NEARER},
    }
    ids = [*due_ms]
    sent(store, ids)
    promoter.heartbeat()  # from now on it leads at the queue, and what is far can be promoted to Redis
    die_while_calling(redis_server, {"journal_url": journal_url, "journal": "all"}, due_ms)
    assert waiting(store) == Counter(ids)
    assert all_promoted(make_journaled) == Counter(ids)
    store.client.flushall()
    promoter = Promoter(store).heartbeat()
    assert restored(store).restored == len(ids)
    promoter.promote()
    assert waiting(store) == Counter(ids)
    assert all_promoted(make_journaled) == Counter(ids)
