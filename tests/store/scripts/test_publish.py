"""``publish.lua``: sends the staged messages of a committed bulk job."""

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import PUBLISH_BYTES, PUBLISH_COUNT, Enqueued
from kombu_delayq.store.jobs import BulkJobs
from kombu_delayq.store.types import Offer
from tests.support.store.jobs import (
    JOB,
    KEPT_MS,
    STAGED,
    TTL_MS,
    WHOLE,
    begun,
    found_job,
    now,
    several,
    staged_job,
    without_whole,
)
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, Ear, announced, contents, look, popped, waiting


def test_staged_messages_go_where_they_would_have_gone(store: DelayStore) -> None:
    """A call sends the messages of one queue, now or later by Redis's clock; after the last the job is committed."""
    job = staged_job(store, ("q", now("i", priority=9)), ("q", waiting("j")), ("q", waiting("k", PAST_MS)))
    assert store.jobs.publish(job) == Enqueued("enqueued", 3, 0)
    assert look(store)[b"waiting in q"] == [("j", FUTURE_MS, 0, b"body of j")]
    after = without_whole(contents(store.client))
    assert (after[b"{q}\x06\x169"], after[b"q"]) == ([b"body of i"], [b"body of k"])
    assert after[JOB.encode()][b"state"] == b"committed"
    assert STAGED.encode() not in after
    assert store.jobs.publish(job) == Enqueued("enqueued")
    assert without_whole(contents(store.client)) == after
    assert store.client.hget(WHOLE, "state") == b"committed"


def test_many_messages_take_many_calls(store: DelayStore) -> None:
    """A call sends a number of messages, the first ones, and until the last the job is not committed."""
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, several(PUBLISH_COUNT + 1))
    store.jobs.finish(job, "committed")
    assert store.jobs.publish(job).fresh == PUBLISH_COUNT
    found = found_job(store)
    assert (found.state, found.staged, found.enqueued) == ("publishing", 1, PUBLISH_COUNT + 1)
    assert store.jobs.publish(job).fresh == 1
    assert popped(store.client, "q") == [f"body of i{n}".encode() for n in range(PUBLISH_COUNT + 1)]


def test_large_messages_take_many_calls(store: DelayStore) -> None:
    """A call sends about as many bytes as it may, and at least one message however large."""
    size = PUBLISH_BYTES // 2
    bodies = ["x" * size, "y" * size, "z" * PUBLISH_BYTES * 2, "last"]
    job = staged_job(store, *(("q", now(body[0], body)) for body in bodies))
    assert [store.jobs.publish(job).fresh for _ in range(4)] == [2, 1, 1, 0]
    assert popped(store.client, "q") == [body.encode() for body in bodies]


def test_each_queue_gets_its_own(store: DelayStore) -> None:
    """Messages for several queues go to each in the order in which they were staged."""
    job = staged_job(store, *(("ab"[n // 2 % 2], now(str(n))) for n in range(8)))
    assert [store.jobs.publish(job).fresh for _ in range(3)] == [4, 4, 0]
    assert popped(store.client, "a") == [b"body of 0", b"body of 1", b"body of 4", b"body of 5"]
    assert popped(store.client, "b") == [b"body of 2", b"body of 3", b"body of 6", b"body of 7"]
    assert store.queues.names() == ["a", "b"]


@pytest.mark.parametrize("queues", ["ab", "a"])
def test_another_publisher_at_the_same_queue_ends_none(
    store: DelayStore, monkeypatch: pytest.MonkeyPatch, queues: str
) -> None:
    """Who finds that another one has sent a queue's messages sends those of the other queues, if there are any."""
    job = staged_job(store, *((queue, now(queue)) for queue in queues))
    staged_in = BulkJobs._staged_in

    def read_late(jobs: BulkJobs, name: str) -> dict[str, int]:
        found = staged_in(jobs, name)
        monkeypatch.undo()
        assert store.jobs.publish(job).fresh == 1
        return found

    monkeypatch.setattr(BulkJobs, "_staged_in", read_late)
    assert store.jobs.publish(job) == Enqueued("enqueued", len(queues) - 1)
    assert [popped(store.client, queue) for queue in queues] == [[f"body of {queue}".encode()] for queue in queues]


def test_nothing_is_sent_before_the_job_is_committed(store: DelayStore) -> None:
    """While a job is open, what it has staged stays."""
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, several(2))
    before = contents(store.client)
    assert store.jobs.publish(job) == Enqueued("open")
    assert contents(store.client) == before


def test_without_the_job_nothing_is_sent(store: DelayStore) -> None:
    """Staged messages whose job is not remembered are not sent."""
    job = staged_job(store, ("q", now("i")))
    store.client.delete(JOB)
    before = contents(store.client)
    assert store.jobs.publish(job) == Enqueued("unknown")
    assert contents(store.client) == before


def test_any_run_publishes(store: DelayStore) -> None:
    """Who publishes need not be the run that committed: it may have ended half way."""
    job = staged_job(store, ("q", now("i")))
    assert store.jobs.publish(job._replace(run=job.run + 7)).fresh == 1


def test_a_head_is_announced(store: DelayStore, ear: Ear) -> None:
    """Transfer workers hear of the first of the delayed messages that are sent, and not before."""
    job = staged_job(store, ("q", waiting("i", FUTURE_MS + 1)), ("q", waiting("j")))
    assert ear.heard() == []
    store.jobs.publish(job)
    assert ear.heard() == [announced(store, FUTURE_MS)]


def test_a_rate_holds_publishing_up(store: DelayStore) -> None:
    """At a rate the next call waits for as long as the messages of the last one take."""
    job = staged_job(store, ("a", now("i")), ("b", now("j")), max_rate=0.1)
    assert store.jobs.publish(job).fresh == 1
    before = contents(store.client)
    reply = store.jobs.publish(job)
    assert reply.word == "wait"
    assert 0 < reply.wait_ms <= 10_000
    assert contents(store.client) == before | {b"{delayq}:queues": {b"a", b"b"}}


def test_as_many_are_published_as_the_queue_has_room_for(store: DelayStore) -> None:
    """With ``max_depth`` less than a call's messages, each call fills the queue up, and says so when it is full."""
    job = staged_job(store, *(("q", each) for each in several(8)), max_depth=5)
    store.client.lpush("{q}\x06\x163", "of somebody else")
    store.delivery.offer("q", waiting("i"))
    assert store.jobs.publish(job).fresh == 3
    before = contents(store.client)
    assert store.jobs.publish(job) == Enqueued("deep", depth=5)
    assert contents(store.client) == before
    assert len(popped(store.client, "q")) == 3
    assert [store.jobs.publish(job).fresh for _ in range(2)] == [3, 0]
    popped(store.client, "q")
    assert [store.jobs.publish(job).fresh for _ in range(2)] == [2, 0]


def test_publishing_puts_off_the_end_of_what_is_staged(store: DelayStore) -> None:
    """Each call gives the job and what is left the full time, and the queue's keys no end."""
    job = staged_job(store, ("q", waiting("i", priority=3)), ("q", now("j")), max_depth=1)
    for key in (JOB, STAGED):
        store.client.pexpire(key, TTL_MS // 10)
    assert store.jobs.publish(job).fresh == 1
    assert all(TTL_MS // 2 < store.client.pttl(key) <= KEPT_MS for key in (JOB, STAGED))
    assert {store.client.pttl(key) for key in store.keys.stored("q", store.layout)[:3]} == {-1}
    store.lookup.cancel(["q"], ["i"])
    assert store.jobs.publish(job).fresh == 1
    assert TTL_MS // 2 < store.client.pttl(JOB) <= KEPT_MS
    assert store.client.pttl("q") == -1


def test_any_message(store: DelayStore) -> None:
    """A staged message of any bytes, for a queue of any name, arrives as it was."""
    body, queue = bytes(range(256)), "ü {tag} ✓\n"
    store.jobs.publish(staged_job(store, (queue, Offer("\0", "", 0, body))))
    assert popped(store.client, queue) == [body]


def test_staged_messages_of_the_wrong_type_are_left_alone(store: DelayStore) -> None:
    """Where somebody else's key is in the place of the staged messages, the error of Redis is raised."""
    job = staged_job(store, ("q", now("i")))
    store.client.delete(STAGED)
    store.client.set(STAGED, "somebody else's")
    before = contents(store.client)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        store.jobs.publish(job)
    assert contents(store.client) == before
