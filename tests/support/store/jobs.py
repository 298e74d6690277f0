"""Bulk jobs and their messages, for the tests of several files."""

import os

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.bulk_jobs import JobRun
from kombu_delayq.store.types import Offer

#: Keys of the job "j"; where Redis has hash slots, of its part for the queue "q".
IN_SLOTS = os.environ.get("DELAYQ_REDIS_SLOTS") == "1"
JOB, GUARD, STAGED = (
    f"delayq:{{q}}:j:{what}" if IN_SLOTS else f"delayq:{what}:j" for what in ("job", "guard", "staged")
)
#: For tests that look at all keys.
without_slots = pytest.mark.skipif(IN_SLOTS, reason="the keys are those of a Redis without hash slots")
#: How long Redis remembers a job here, in ms: longer than any test.
TTL_MS = 600_000


def begun(
    store: DelayStore, name: str = "j", *, staged: bool = False, max_rate: float = 0.0, max_depth: int = 0
) -> JobRun:
    """Begins a new run of a job."""
    job = JobRun(name, store.jobs.new_run(), TTL_MS, staged, max_rate, max_depth)
    assert store.jobs.begin(job).word == "open"
    return job


def now(identity: str, body: str | bytes = "", priority: int = 0) -> Offer:
    """Makes an offer of a message that is due at once; its body contains its id."""
    return Offer(identity, "", priority, body or f"body of {identity}")


def several(count: int, of: str = "i") -> list[Offer]:
    """Makes offers that are due at once, each with its own id."""
    return [now(f"{of}{n}") for n in range(count)]


def claim(identity: str) -> Offer:
    """Makes an offer that only claims its id."""
    return Offer(identity, "", 0, "")


def staged_job(store: DelayStore, *messages: tuple[str, Offer], max_rate: float = 0.0, max_depth: int = 0) -> JobRun:
    """Stages messages, each for a queue, and commits their job without sending them yet."""
    job = begun(store, staged=True, max_rate=max_rate, max_depth=max_depth)
    for queue, message in messages:
        assert store.jobs.enqueue(queue, job, [message]).word == "enqueued"
    assert store.jobs.finish(job, "committed") == "publishing"
    return job


def published(store: DelayStore, job: JobRun) -> int:
    """Publishes until nothing is left. Returns the number of messages."""
    total = 0
    while (reply := store.jobs.publish(job)).fresh:
        total += reply.fresh
    assert reply.word in ("enqueued", "committed")
    return total
