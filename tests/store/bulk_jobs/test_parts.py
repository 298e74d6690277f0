"""A bulk job has a part in the slot of each of its queues; together they are one job."""

from collections.abc import Callable, Iterator

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.job_types import Begun, Enqueued, JobRun
from celery_ext.spark.keys import JobKeys
from celery_ext.spark.store import BulkJobs
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.store import DelayStore
from tests.support.store.jobs import TTL_MS, begun, found_job, jobs, now, several
from tests.support.store.keyspace import popped

Make = Callable[[], DelayStore]


@pytest.fixture
def make(server: PrivateRedis) -> Iterator[Make]:
    """Makes stores on an empty server."""
    with redis.Redis(port=server.port) as client:
        client.flushall()
        yield lambda: DelayStore(client, SlotKeys("app:"))


@pytest.fixture
def store(make: Make) -> DelayStore:
    return make()


def test_one_job_in_many_slots(store: DelayStore) -> None:
    """Each queue gets its rows once, the counts are those of the whole job, and nothing is sent after its end."""
    job = begun(store)
    for _ in range(2):
        for queue in ("a", "b", "c"):
            jobs(store).enqueue(queue, job, several(3))
    found = found_job(store)
    assert (found.state, found.sent) == ("running", 9)
    assert jobs(store).finish(job, "committed") == "committed"
    assert jobs(store).enqueue("a", job, [now("late")]) == Enqueued("committed")
    assert jobs(store).enqueue("d", job, [now("late")]) == Enqueued("committed")
    assert [len(popped(store.client, f"app:{queue}")) for queue in "abcd"] == [3, 3, 3, 0]
    assert not [key for key in store.client.scan_iter() if key.endswith(b":guard")]


def test_a_later_run_takes_all_parts_over(make: Make) -> None:
    """An earlier run writes neither to queues that it knows nor to others; the later one sends what is missing."""
    store, other = make(), make()
    earlier = begun(store)
    jobs(store).enqueue("a", earlier, several(2))
    later = begun(other)
    assert jobs(store).enqueue("a", earlier, several(3)).word == "superseded"
    assert jobs(store).enqueue("b", earlier, several(3)).word == "superseded"
    assert jobs(other).enqueue("a", later, several(3)) == Enqueued("enqueued", 1, 2)
    assert jobs(other).finish(earlier, "aborted") == "superseded"
    assert jobs(other).finish(later, "committed") == "committed"
    assert jobs(store).begin(begun_again(store)) == Begun("committed", found_job(store).base_ms)
    assert len(popped(store.client, "app:a")) == 3


def begun_again(store: DelayStore) -> JobRun:
    return JobRun("j", jobs(store).new_run(), TTL_MS)


def test_a_part_that_begins_late_learns_of_the_end(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A straggler that was stopped between its look at the job and its part's beginning finds that part at its end."""
    job = begun(store)
    begin_parts = BulkJobs._begin_parts

    def late(part: BulkJobs, run: JobRun, base_ms: float, queues: list[str]) -> list[str]:
        monkeypatch.undo()
        assert jobs(store).finish(job, word) == word
        return begin_parts(part, run, base_ms, queues)

    for word in ("aborted", "committed"):
        monkeypatch.setattr(BulkJobs, "_begin_parts", late)
        assert jobs(store).enqueue("a", job, [now("i")]) == Enqueued(word)
        job = begun(store) if word == "aborted" else job
    assert not store.client.exists("app:a")


@pytest.mark.parametrize("word", ["committed", "aborted"])
def test_an_end_that_was_cut_short_is_completed(store: DelayStore, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """A driver that dies between the end of the job and those of its parts leaves that to the next run."""
    job = begun(store)
    jobs(store).enqueue("a", job, several(2))
    monkeypatch.setattr(BulkJobs, "_end_parts", lambda *_: (_ for _ in ()).throw(ConnectionError))
    with pytest.raises(ConnectionError):
        jobs(store).finish(job, word)
    monkeypatch.undo()
    again = begun_again(store)
    assert jobs(store).begin(again).word == ("committed" if word == "committed" else "open")
    state = store.client.hget(JobKeys(store.keys).job("j", "a"), "state")
    assert state == (b"committed" if word == "committed" else b"open")
    assert jobs(store).enqueue("a", again, several(3)).fresh == (0 if word == "committed" else 1)
    assert jobs(store).finish(again, "committed") == "committed"
    assert len(popped(store.client, "app:a")) == (2 if word == "committed" else 3)


def test_the_rate_is_that_of_the_whole_job(store: DelayStore) -> None:
    """A minute's messages to one queue hold up another one; ids that were sent before take none of the rate."""
    job = begun(store, max_rate=50 / 60)
    assert jobs(store).enqueue("a", job, several(50)).fresh == 50
    reply = jobs(store).enqueue("b", job, several(1))
    assert (reply.word, 0 < reply.wait_ms <= 60_000) == ("wait", True)
    assert jobs(store).enqueue_commands("b", job, several(1)) == []
    quick = job._replace(max_rate=0.0)
    assert jobs(store).enqueue("b", quick, several(1)).fresh == 1


def test_parts_live_longer_than_their_job(store: DelayStore) -> None:
    """What was sent is remembered at least as long as the job, and a new job of its name begins all parts anew."""
    job = begun(store)
    jobs(store).enqueue("a", job, several(2))
    keys = JobKeys(store.keys)
    assert store.client.pttl(keys.guard("j", "a")) > TTL_MS >= store.client.pttl(keys.job("j"))
    jobs(store).finish(job, "committed")
    store.client.delete(keys.job("j"), keys.parts("j"))  # its time is over
    assert jobs(store).enqueue("a", job, several(2)).word == "committed"
    new = begun(store)
    assert jobs(store).enqueue("a", new, several(2)).fresh == 2


def test_a_part_whose_data_are_lost_takes_nothing_until_the_job_is_run_again(store: DelayStore) -> None:
    """Whoever wrote to the part is told that it is unknown, each time; a later run sends what is missing there."""
    job = begun(store)
    for queue in ("a", "b"):
        assert jobs(store).enqueue(queue, job, several(2)).fresh == 2
    keys = JobKeys(store.keys)
    store.client.delete("app:b", *(of("j", "b") for of in (keys.job, keys.guard)))  # a node comes up empty
    for _ in range(2):
        assert jobs(store).enqueue("b", job, several(3)) == Enqueued("unknown")
    again = begun(store)
    assert jobs(store).enqueue("a", again, several(3)) == Enqueued("enqueued", 1, 2)
    assert jobs(store).enqueue("b", again, several(3)) == Enqueued("enqueued", 3)
    assert jobs(store).finish(again, "committed") == "committed"
    assert [len(popped(store.client, f"app:{queue}")) for queue in "ab"] == [3, 3]
