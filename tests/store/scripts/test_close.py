"""``close.lua``: notes that all parts of a bulk job have ended."""

from celery_ext.spark.job_types import JobRun
from kombu_delayq.store import DelayStore
from tests.support.store.jobs import TTL_MS, WHOLE, begun, jobs
from tests.support.store.keyspace import contents


def test_the_end_of_the_parts_is_noted(store: DelayStore) -> None:
    """The job as a whole has the run whose parts have ended, and lives for its time from then on."""
    job = begun(store)
    before = contents(store.client)
    store.client.pexpire(WHOLE, TTL_MS // 10)
    assert jobs(store).close(job) == "closed"
    before[WHOLE.encode()] |= {b"closed": b"%d" % job.run}
    assert contents(store.client) == before
    assert TTL_MS // 2 < store.client.pttl(WHOLE) <= TTL_MS


def test_a_later_run_stays_open(store: DelayStore) -> None:
    """A late end of a run does not end the next one."""
    job = begun(store)
    jobs(store).finish(job, "aborted")
    begun(store)
    before = contents(store.client)
    assert jobs(store).close(job) == "superseded"
    assert contents(store.client) == before


def test_a_job_that_is_not_remembered_stays_so(store: DelayStore) -> None:
    """Nothing is noted that nobody would ever remove."""
    assert jobs(store).close(JobRun("j", 1, TTL_MS)) == "unknown"
    assert contents(store.client) == {}
