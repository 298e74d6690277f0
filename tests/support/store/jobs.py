"""Bulk jobs and their messages, for the tests of several files."""

from typing import Any

from celery_ext.spark.job_types import Job, JobRun
from celery_ext.spark.keys import JobKeys
from celery_ext.spark.store import BulkJobs, longer
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.keyspace import KEYS, Contents

#: State of the job "j" as a whole.
WHOLE = "{delayq}:job:j"
#: Keys of its part for the queue "q".
JOB, GUARD = JobKeys(KEYS).job("j", "q"), JobKeys(KEYS).guard("j", "q")
#: How long Redis remembers a job here, in ms: longer than any test. And how long what its part keeps.
TTL_MS = 600_000
KEPT_MS = longer(TTL_MS)


def jobs(store: DelayStore) -> BulkJobs:
    """Returns the part of a store for bulk jobs."""
    return store.part(BulkJobs)


def begun(store: DelayStore, name: str = "j", **how: Any) -> JobRun:
    """Begins a new run of a job; keywords as in ``JobRun``."""
    job = JobRun(name, jobs(store).new_run(), TTL_MS, **how)
    assert jobs(store).begin(job).word == "open"
    return job


def joined(store: DelayStore, job: JobRun, queue: str = "q") -> JobRun:
    """Lets a run write to a queue: its part begins. Returns the run."""
    jobs(store).enqueue_commands(queue, job._replace(max_rate=0.0), [claim("not sent")])
    return job


def found_job(store: DelayStore, name: str = "j") -> Job:
    """Returns what the store tells of a job that it knows."""
    found = jobs(store).find(name)
    assert found is not None
    return found


def without_whole(found: Contents) -> Contents:
    """Returns contents without what jobs keep as a whole."""
    return {key: kept for key, kept in found.items() if not key.startswith((b"{delayq}:job:", b"{delayq}:parts:"))}


def now(identity: str, body: str | bytes = "", priority: int = 0) -> Offer:
    """Makes an offer of a message that is due at once; its body contains its id."""
    return Offer(identity, "", priority, body or f"body of {identity}")


def several(count: int, of: str = "i") -> list[Offer]:
    """Makes offers that are due at once, each with its own id."""
    return [now(f"{of}{n}") for n in range(count)]


def claim(identity: str) -> Offer:
    """Makes an offer that only claims its id."""
    return Offer(identity, "", 0, "")
