"""Bulk jobs from begin to end: runs, delivery, limits, names."""

from uuid import uuid4

import pytest

from celery_ext.spark.job_types import Enqueued
from celery_ext.spark.keys import JobKeys
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import GUARD, JOB, begun, claim, jobs, now, several
from tests.support.store.keyspace import BODIES, DUE, PAST_MS, QUEUE_NAMES, in_form, popped, waiting


def test_a_store_lives_longer_than_the_data_of_its_redis(store: DelayStore) -> None:
    """When Redis has lost everything, a job is unknown until it begins, and then has all its rows written.

    Runs are counted from the start again, so the job has the name and the run of one that the store has written to.
    """
    store.client.flushdb()
    job = begun(store)
    assert jobs(store).enqueue("q", job, several(2)).fresh == 2
    store.client.flushdb()
    assert jobs(store).enqueue("q", job, several(3)) == Enqueued("unknown")
    assert begun(store) == job
    assert jobs(store).enqueue("q", job, several(3)) == Enqueued("enqueued", 3)
    assert jobs(store).finish(job, "committed") == "committed"
    assert store.client.llen("q") == 3


def test_delayed_messages_are_transferred_when_they_are_due(store: DelayStore) -> None:
    """Messages of a job that are due later wait in the store, and a transfer worker moves them in their order."""
    job = begun(store)
    messages = [waiting(name, priority=priority) for name, priority in [("z", 0), ("a", 0), ("m", 9)]]
    jobs(store).enqueue("q", job, messages)
    jobs(store).finish(job, "committed")
    assert store.delivery.transfer("q").moved == 0
    due = in_form(store, DUE)
    store.client.zadd(due, dict.fromkeys(store.client.zrange(due, 0, -1), PAST_MS))  # the time has come
    assert store.delivery.transfer("q").moved == 3
    assert popped(store.client, "q") == [b"body of z", b"body of a"]
    assert popped(store.client, "{q}\x06\x169") == [b"body of m"]
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES)))


def test_a_message_that_waits_already_is_not_doubled(store: DelayStore) -> None:
    """A message that a publisher has stored, byte for byte, is not stored again; others of its id are."""
    store.delivery.offer("q", waiting("i"))
    assert jobs(store).enqueue("q", begun(store), [waiting("i")]).word == "enqueued"
    assert store.queues.size("q") == 1
    assert jobs(store).enqueue("q", begun(store, "other"), [waiting("i", body="other")]).word == "enqueued"
    assert store.queues.size("q") == 2


def test_a_priority_step_given_twice_is_counted_once(make_store: MakeStore) -> None:
    """Where ``priority_steps`` name a step twice, its list counts once for ``max_depth``."""
    store = make_store(steps=(0, 0, 3, 3))
    job = begun(store, max_depth=3)
    assert [jobs(store).enqueue("q", job, [now(name)]).word for name in "abcd"] == ["enqueued"] * 3 + ["deep"]


@pytest.mark.parametrize("name", [*QUEUE_NAMES, "{q}:due", "j:0", "\0", "\x7f"])
def test_any_name_of_job_queue_and_stream(store: DelayStore, name: str) -> None:
    """Jobs, queues and streams of any name are kept apart, and a whole job of such names sends each message once."""
    other = begun(store, f"j{name}~")
    jobs(store).enqueue("other", other, several(1))
    job = begun(store, f"j{name}")
    assert jobs(store).begin(job, name).word == "open"
    assert jobs(store).enqueue(name, job, [now("i"), waiting("j")]).fresh == 2
    assert jobs(store).of_stream(name) == (f"j{name}" if name else None)
    jobs(store).finish(job, "committed")
    assert (store.queues.size(name), popped(store.client, name)) == (1, [b"body of i"])
    states = [found.state for each in (job.name, other.name) if (found := jobs(store).find(each))]
    assert states == ["committed", "running"]


def test_a_job_that_is_not_remembered_can_be_written_by_nobody(store: DelayStore) -> None:
    """When the time is up nothing of a job is left, what its tasks then write is refused, and the queue stays."""
    job = begun(store)
    jobs(store).begin(job, "s")
    assert jobs(store).enqueue("q", job, [now("i"), waiting("j")]).fresh == 2
    keys = [JobKeys(store.keys).job("j"), JobKeys(store.keys).stream("s"), JOB, GUARD]
    for key in filter(store.client.exists, keys):
        assert store.client.pttl(key) > 0
        store.client.pexpire(key, 1)  # the time is up
    until(lambda: not any(map(store.client.exists, keys)))
    assert jobs(store).enqueue("q", job, [now("k")]) == Enqueued("unknown")
    assert (jobs(store).find("j"), jobs(store).of_stream("s")) == (None, None)
    assert (store.client.llen("q"), store.queues.size("q")) == (1, 1)


def test_a_guard_takes_less_than_a_hundred_bytes_an_id(store: DelayStore) -> None:
    """The ids of 100,000 messages, as UUIDs, take no more than 100 bytes each while the job runs, and none after."""
    job = begun(store)
    for _ in range(100):
        jobs(store).enqueue("q", job, [claim(str(uuid4())) for _ in range(1000)])
    assert store.client.hlen(GUARD) == 100_000
    assert store.client.memory_usage(GUARD, samples=0) <= 100 * 100_000
    jobs(store).finish(job, "committed")
    assert not store.client.exists(GUARD)
    assert store.client.memory_usage(JOB) < 1000
