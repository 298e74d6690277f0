"""``job_rate.lua``: lets a bulk job send as many messages as its rate allows."""

from kombu_delayq.store import DelayStore
from tests.support.store.jobs import begun, jobs
from tests.support.store.keyspace import contents


def test_a_job_waits_for_its_rate(store: DelayStore) -> None:
    """A job that has sent the messages of a minute waits for about a minute; it may give back what it did not send."""
    job = begun(store, max_rate=1000 / 60)
    assert jobs(store).job_rate(job, 1000) == 0
    wait_ms = jobs(store).job_rate(job, 1)
    assert 30_000 < wait_ms <= 60_000
    assert jobs(store).job_rate(job, -1000) == 0
    assert jobs(store).job_rate(job, 1000) == 0


def test_nothing_to_ask(store: DelayStore) -> None:
    """Without a rate, or for no message, nothing is asked; of a job that Redis does not know, nothing is noted."""
    job = begun(store, "other", max_rate=10.0)
    before = contents(store.client)
    assert jobs(store).job_rate(job._replace(name="j"), 100) == 0
    assert jobs(store).job_rate(job._replace(max_rate=0.0), 100) == 0
    assert jobs(store).job_rate(job, 0) == 0
    assert contents(store.client) == before
