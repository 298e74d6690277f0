"""``claim_ids.lua``: claims ids of a bulk job, so that none of its runs sends them."""

from celery_ext.spark.job_types import Enqueued
from kombu_delayq.store import DelayStore
from tests.support.store.jobs import begun, jobs, now
from tests.support.store.keyspace import contents


def test_what_is_claimed_is_known(store: DelayStore) -> None:
    """A sender learns which ids are claimed, and which ids the job has sent to a queue."""
    job = begun(store)._replace(cancels=True)
    jobs(store).enqueue("q", job, [now("i0")])
    assert jobs(store).claim_ids(job, ["i1", "i2"]) == Enqueued("enqueued")
    assert jobs(store).excluded(job, ["i0", "i1", "i2", "i3"]) == {"i1", "i2"}
    assert jobs(store).sent("q", job, [now("i0"), now("i3")]) == [True, False]


def test_a_committed_job_has_sent_all(store: DelayStore) -> None:
    """After the end of a job nothing is claimed, and the caller is told."""
    job = begun(store)
    jobs(store).finish(job, "committed")
    before = contents(store.client)
    assert jobs(store).claim_ids(job, ["i"]) == Enqueued("committed")
    assert contents(store.client) == before
