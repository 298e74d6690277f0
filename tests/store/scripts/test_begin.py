"""``begin.lua``: lets a run take part in a bulk job."""

import pytest

from celery_ext.spark.job_types import Begun, JobRun
from kombu_delayq.store import DelayStore
from tests.support.store.jobs import GUARD, JOB, KEPT_MS, TTL_MS, WHOLE, begun, found_job, jobs, now
from tests.support.store.keyspace import clock_ms, contents

STREAM = "{delayq}:stream:s"


def run(number: int, name: str = "j") -> JobRun:
    """Makes a run that has not begun."""
    return JobRun(name, number, TTL_MS)


def test_a_new_job_is_open_from_now_on(store: DelayStore) -> None:
    """On an empty database, a run makes exactly the job's state, open, with the moment by Redis's clock."""
    before_ms = clock_ms(store.client)
    begun = jobs(store).begin(run(3))
    after_ms = clock_ms(store.client)
    assert begun.word == "open"
    assert before_ms <= begun.base_ms <= after_ms
    found = contents(store.client)
    state = found.pop(WHOLE.encode())
    assert found == {}
    assert float(state.pop(b"base")) == begun.base_ms
    assert state == {b"state": b"open", b"run": b"3", b"staged": b"0"}


def test_each_task_of_a_run_gets_the_same_answer(store: DelayStore) -> None:
    """The moment at which a job began stays, for other tasks of its run and for later runs."""
    first = jobs(store).begin(run(1))
    before = contents(store.client)
    assert jobs(store).begin(run(1)) == first
    assert contents(store.client) == before
    assert jobs(store).begin(run(2)) == first


def test_a_later_run_takes_the_job_over(store: DelayStore) -> None:
    """After a later run has begun, earlier ones are told so and change nothing."""
    jobs(store).begin(run(9))
    base_ms = jobs(store).begin(run(10)).base_ms  # as numbers, not as texts
    before = contents(store.client)
    assert jobs(store).begin(run(9)) == Begun("superseded", base_ms)
    assert contents(store.client) == before
    assert before[WHOLE.encode()][b"run"] == b"10"


def test_an_aborted_run_cannot_go_on_and_a_later_one_can(store: DelayStore) -> None:
    """The run that was aborted stays so; a later run opens the job again, and its counts go on."""
    job = begun(store)
    jobs(store).enqueue("q", job, [now("i")])
    jobs(store).finish(job, "aborted")
    before = contents(store.client)
    assert jobs(store).begin(job).word == "aborted"
    assert contents(store.client) == before
    later = begun(store)
    assert jobs(store).begin(job).word == "superseded"
    found = found_job(store)
    assert (found.state, found.run, found.sent) == ("running", later.run, 1)


def test_a_committed_job_takes_no_run_any_more(store: DelayStore) -> None:
    """Neither the run that committed a job nor an earlier or later one may write."""
    job = begun(store)
    jobs(store).enqueue("q", job, [now("i")])
    jobs(store).finish(job, "committed")
    before = contents(store.client)
    for number in (job.run - 1, job.run, job.run + 1):
        assert jobs(store).begin(run(number), "s").word == "committed"
    assert contents(store.client) == before


def test_a_stream_knows_its_latest_job(store: DelayStore) -> None:
    """The job of a stream is found by the stream's name, as long as the job is remembered."""
    assert jobs(store).of_stream("s") is None
    jobs(store).begin(run(1, "s/0"), "s")
    jobs(store).begin(run(2, "s/1"), "s")
    jobs(store).begin(run(3, "of no stream"))
    assert jobs(store).of_stream("s") == "s/1"
    assert contents(store.client)[STREAM.encode()] == b"s/1"
    assert 0 < store.client.pttl(STREAM) <= TTL_MS


def test_a_superseded_run_does_not_take_the_stream(store: DelayStore) -> None:
    """A run that may not write leaves the stream's job as it is."""
    jobs(store).begin(run(2, "old"), "s")
    jobs(store).begin(run(3, "new"), "s")
    assert jobs(store).begin(run(1, "old"), "s").word == "superseded"
    assert jobs(store).of_stream("s") == "new"


def test_what_a_job_needs_lives_as_long_as_the_job(store: DelayStore) -> None:
    """A run that begins gives job and guard the full time again: neither ends before the other."""
    jobs(store).enqueue("q", begun(store), [now("i")])
    for key in {WHOLE, JOB, GUARD}:
        store.client.pexpire(key, TTL_MS // 10)
    begun(store)
    assert all(TTL_MS // 2 < store.client.pttl(key) <= KEPT_MS for key in (JOB, GUARD))
    assert TTL_MS // 2 < store.client.pttl(WHOLE) <= TTL_MS


def test_runs_are_counted(store: DelayStore) -> None:
    """Each run gets a number above all before it, whatever its job, and the count does not expire."""
    assert [jobs(store).new_run() for _ in range(3)] == [1, 2, 3]
    assert contents(store.client) == {b"{delayq}:runs": b"3"}
    assert store.client.ttl("{delayq}:runs") == -1


@pytest.mark.parametrize(("state", "word"), [("open", "mixed"), ("aborted", "mixed"), ("publishing", "committed")])
def test_what_an_earlier_version_has_staged_is_left_to_it(store: DelayStore, state: str, word: str) -> None:
    """A job whose messages are staged takes no run: its guard has ids that were not sent."""
    job = begun(store)
    store.client.hset(WHOLE, mapping={"state": state, "staged": "1", "closed": job.run})
    before = contents(store.client)
    assert jobs(store).begin(run(job.run + 1)).word == word
    assert contents(store.client) == before
    assert found_job(store).state == {"open": "running", "publishing": "committed"}.get(state, state)
