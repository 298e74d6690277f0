"""``finish.lua``: commits or aborts a bulk job."""

import pytest

from celery_ext.spark.job_types import Enqueued, JobRun
from kombu_delayq.store import DelayStore
from tests.support.store.jobs import (
    GUARD,
    JOB,
    KEPT_MS,
    TTL_MS,
    WHOLE,
    begun,
    found_job,
    jobs,
    now,
    several,
    without_whole,
)
from tests.support.store.keyspace import clock_ms, contents, waiting


def test_a_commit_leaves_the_fence_only(store: DelayStore) -> None:
    """After a commit the guard is gone, the job says so for its time, and what was sent stays."""
    job = begun(store)
    jobs(store).enqueue("q", job, [now("i"), waiting("j")])
    before = without_whole(contents(store.client))
    store.client.pexpire(JOB, TTL_MS // 10)
    assert jobs(store).finish(job, "committed") == "committed"
    after = without_whole(contents(store.client))
    del before[GUARD.encode()]
    before[JOB.encode()][b"state"] = b"committed"
    assert 0 <= float(after[JOB.encode()].pop(b"ended")) - float(before[JOB.encode()][b"base"]) < TTL_MS
    assert after == before
    assert TTL_MS // 2 < store.client.pttl(JOB) <= KEPT_MS
    assert store.client.hget(WHOLE, "state") == b"committed"
    assert TTL_MS // 2 < store.client.pttl(WHOLE) <= TTL_MS


def test_an_aborted_job_keeps_its_guard(store: DelayStore) -> None:
    """A later run of an aborted job sends only the ids that the job has not sent yet."""
    job = begun(store)
    jobs(store).enqueue("q", job, several(3))
    store.client.pexpire(GUARD, TTL_MS // 10)
    assert jobs(store).finish(job, "aborted") == "aborted"
    assert TTL_MS // 2 < store.client.pttl(GUARD) <= KEPT_MS
    assert jobs(store).enqueue("q", begun(store), several(5)) == Enqueued("enqueued", 2, 3)


@pytest.mark.parametrize("word", ["committed", "aborted"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_job_without_tasks_may_end(store: DelayStore, word: str, number: int) -> None:
    """A job of which no task has begun ends, with the moment of its end as that of its begin."""
    before_ms = clock_ms(store.client)
    assert jobs(store).finish(JobRun("j", number, TTL_MS), word) == word
    after_ms = clock_ms(store.client)
    found = found_job(store)
    assert (found.state, found.run, found.sent) == (word, number, 0)
    assert before_ms <= found.base_ms <= after_ms
    assert store.client.keys() == [WHOLE.encode()]


@pytest.mark.parametrize("word", ["committed", "aborted"])
@pytest.mark.parametrize("end", ["committed", "aborted"])
def test_an_end_is_final(store: DelayStore, end: str, word: str) -> None:
    """To end a job again, in either way, returns how it ended, and changes nothing."""
    job = begun(store)
    jobs(store).enqueue("q", job, several(3))
    jobs(store).finish(job, end)
    before = contents(store.client)
    for each in (job, job._replace(run=0)):
        assert jobs(store).finish(each, word) == end
    assert contents(store.client) == before


@pytest.mark.parametrize("word", ["committed", "aborted"])
def test_an_earlier_run_cannot_end_a_later_one(store: DelayStore, word: str) -> None:
    """A driver that was left behind neither commits nor aborts what runs now."""
    left_behind = begun(store)
    job = begun(store)
    jobs(store).enqueue("q", job, several(3))
    before = contents(store.client)
    assert jobs(store).finish(left_behind, word) == "superseded"
    assert contents(store.client) == before


def test_without_a_number_the_latest_run_ends(store: DelayStore) -> None:
    """The number 0 ends the latest run; later runs may still begin after an abort."""
    begun(store)
    latest = begun(store)
    assert jobs(store).finish(latest._replace(run=0), "aborted") == "aborted"
    assert jobs(store).begin(latest).word == "aborted"
    assert jobs(store).enqueue("q", begun(store), several(1)).fresh == 1
