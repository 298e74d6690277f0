"""What a bulk job counts: each message in the step of Redis that sends or removes it."""

from celery_ext.spark.job_types import JobCounts
from kombu_delayq.store import DelayStore
from tests.support.store.jobs import begun, found_job, jobs


def test_the_end_notes_what_the_driver_has_counted(store: DelayStore) -> None:
    """Rows and bad rows are those of the run that ended last, unknown before; after a commit they stay."""
    job = begun(store)
    assert (found_job(store).rows, found_job(store).bad) == (None, None)
    assert jobs(store).finish(job, "aborted", JobCounts(rows=9)) == "aborted"
    assert (found_job(store).rows, found_job(store).bad) == (9, 0)
    again = begun(store)
    assert found_job(store).ended_ms is None
    jobs(store).finish(again, "committed", JobCounts(rows=5, bad=2, dead_lettered=1, cancelled=4))
    one = found_job(store)
    jobs(store).finish(again, "committed", JobCounts(rows=7))
    assert found_job(store) == one
    assert (one.rows, one.bad, one.dead_lettered, one.cancelled) == (5, 2, 1, 4)
    assert one.ended is not None
    assert one.began <= one.ended
