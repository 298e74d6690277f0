"""``claim_ids.lua``: claims ids of a bulk job for somebody who is none of its runs."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import Enqueued
from tests.support.store.jobs import GUARD, JOB, KEPT_MS, TTL_MS, begun, now, several
from tests.support.store.keyspace import contents, refuses_a_key_of_the_wrong_type


def test_what_is_claimed_is_not_sent(store: DelayStore) -> None:
    """The run that goes on sends no id that was claimed, and keeps writing; an id that it had sent is told."""
    job = begun(store)
    store.jobs.enqueue("q", job, [now("i0")])
    assert store.jobs.claim_ids("j", TTL_MS, [("q", "i0"), ("q", "i1"), ("q", "i2")]) == [False, True, True]
    assert store.jobs.claim_ids("j", TTL_MS, [("q", "i1")]) == [False]
    assert store.jobs.sent("j", [("q", "i0"), ("q", "i1"), ("q", "i3")]) == [True, True, False]
    assert store.jobs.enqueue("q", job, several(4)) == Enqueued("enqueued", 1, 3)
    assert store.client.llen("q") == 2


def test_before_the_job_begins(store: DelayStore) -> None:
    """Ids of a job that is to begin are claimed for the time given, and its first run leaves them out."""
    assert store.jobs.claim_ids("j", TTL_MS, [("q", "i1")]) == [True]
    assert contents(store.client) == {GUARD.encode(): {b"i1"}}
    assert TTL_MS // 2 < store.client.pttl(GUARD) <= TTL_MS
    assert store.jobs.enqueue("q", begun(store), several(3)) == Enqueued("enqueued", 2, 1)


def test_a_longer_life_stays(store: DelayStore) -> None:
    """A guard that lives longer than asked for is not shortened."""
    store.jobs.enqueue("q", begun(store), several(1))
    store.jobs.claim_ids("j", 1000, [("q", "i9")])
    assert TTL_MS // 2 < store.client.pttl(GUARD) <= KEPT_MS


def test_a_committed_job_has_sent_all(store: DelayStore) -> None:
    """After the end of a job nothing is claimed, and the caller is told."""
    job = begun(store)
    store.jobs.finish(job, "committed")
    before = contents(store.client)
    assert store.jobs.claim_ids("j", TTL_MS, [("q", "i")]) is None
    assert contents(store.client) == before
    assert store.jobs.sent("j", [("q", "i")]) == [False]


@pytest.mark.parametrize("key", [JOB, GUARD])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    if key == JOB:
        refuses_a_key_of_the_wrong_type(store, key, lambda: store.jobs.claim_ids("j", TTL_MS, [("q", "i")]))
        return
    store.client.set(key, "somebody else's")
    before = contents(store.client)
    with pytest.raises(Exception, match=f"WRONGTYPE key {key} holds a string"):
        store.jobs.claim_ids("j", TTL_MS, [("q", "i")])
    assert contents(store.client) == before
