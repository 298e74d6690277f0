"""What a bulk job counts: each message in the step of Redis that sends or removes it."""

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.bulk_jobs import Job, JobCounts, JobPart
from kombu_delayq.store.keys import Keys
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import begun, claim, now, published, several
from tests.support.store.keyspace import waiting


def found(store: DelayStore, name: str = "j") -> Job:
    job = store.jobs.find(name)
    assert job is not None
    return job


def test_messages_are_counted_by_queue(store: DelayStore) -> None:
    """Each queue has the number of its messages, and of those that came again, over attempts and runs."""
    job = begun(store)
    store.jobs.enqueue("a", job, several(3))
    store.jobs.enqueue("a", job, several(4))
    store.jobs.finish(job, "aborted")
    again = begun(store)
    store.jobs.enqueue("a", again, several(4))
    store.jobs.enqueue("b:c", again, [waiting("x"), now("y"), now("y"), claim("k"), claim("k")])
    one = found(store)
    assert one.parts == (JobPart("a", "running", 4, 7), JobPart("b:c", "running", 2, 1))
    assert (one.enqueued, one.sent, one.repeated, one.cancelled) == (6, 6, 8, 0)
    assert (one.runs, one.superseded, one.queues) == (2, 0, ("a", "b:c"))


def test_a_chunk_that_is_refused_counts_nothing(store: DelayStore) -> None:
    """Neither a straggler's messages nor those for which there is no room are counted."""
    left_behind = begun(store)
    job = begun(store, max_depth=2)
    assert store.jobs.enqueue("q", left_behind, several(2)).word == "superseded"
    assert store.jobs.enqueue("q", job, several(3)).word == "deep"
    one = found(store)
    assert (one.enqueued, one.repeated, one.wrote_ms) == (0, 0, None)
    assert (one.runs, one.superseded) == (2, 1)


def test_staged_messages_count_once_they_can_be_sent(store: DelayStore) -> None:
    """Of an aborted job, what it had staged counts no more; of a committed one, what waits is told apart."""
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, several(3))
    assert (found(store).enqueued, found(store).staged, found(store).sent) == (3, 3, 0)
    store.jobs.finish(job, "aborted")
    assert [(part.sent, part.state) for part in found(store).parts if part.sent] == []
    again = begun(store, staged=True)
    store.jobs.enqueue("q", again, several(2))
    store.jobs.finish(again, "committed")
    assert found(store).state == "publishing"
    published(store, again)
    one = found(store)
    assert (one.state, one.sent, one.staged) == ("committed", 2, 0)
    assert [part.sent for part in one.parts] == [2]


def test_a_commit_notes_what_the_driver_has_counted(store: DelayStore) -> None:
    """Rows and bad rows are those of the run that was committed, and unknown before; no later call changes them."""
    job = begun(store)
    assert store.jobs.finish(job, "aborted", JobCounts(rows=9)) == "aborted"
    assert (found(store).rows, found(store).bad) == (None, None)
    again = begun(store)
    assert found(store).ended_ms is None
    store.jobs.finish(again, "committed", JobCounts(rows=5, bad=2, dead_lettered=1, late=3, far_cancelled=4))
    one = found(store)
    store.jobs.finish(again, "committed", JobCounts(rows=7))
    assert found(store) == one
    assert (one.rows, one.bad, one.dead_lettered, one.late, one.cancelled) == (5, 2, 1, 3, 4)
    assert one.ended is not None
    assert one.began <= one.ended


def test_a_cancel_counts_each_task_once(store: DelayStore) -> None:
    """A task is counted by the step that removes its messages; who asks again, or finds nothing, counts nothing."""
    store.delivery.offer("other", waiting("mine"))
    job = begun(store)
    store.jobs.enqueue("q", job, [waiting("i"), waiting("j")])
    for queue in ("q", "other"):
        store.jobs.enter(queue, job)
    for _ in range(2):
        list(by_id.cancel(store, ["i", "mine", "nobody"], job="j"))
    list(by_id.cancel(store, ["j"]))
    one = found(store)
    assert one.cancelled == 2
    assert {part.queue: part.cancelled for part in one.parts} == {"q": 1, "other": 1}


def test_a_cancel_for_a_job_that_is_not_remembered(store: DelayStore) -> None:
    """Tasks are cancelled all the same, and nothing is left behind for the job."""
    store.delivery.offer("q", waiting("i"))
    [done] = by_id.cancel(store, ["i"], job="gone")
    assert done.outcome == "cancelled"
    assert not [key for key in store.client.scan_iter() if b"gone" in key]


@pytest.mark.parametrize("prefix", ["", "app*:"])
def test_all_jobs_are_found(make_store: MakeStore, prefix: str) -> None:
    """Jobs of any name are found under the prefix of the store, and those of other prefixes are not."""
    store, other = make_store(keys=Keys(prefix)), make_store(keys=Keys("x"))
    names = {"nightly", "a:b", "far/x/2026-01-01T00", "ünï", "{j}", "*"}
    for name in names:
        begun(store, name)
    store.jobs.enqueue("q", begun(store, "written"), several(1))
    begun(other, "not mine")
    assert set(store.jobs.names()) == names | {"written"}
    assert list(store.jobs.names("night*")) == ["nightly"]
    jobs = store.jobs.find_all([*sorted(names), "unknown", "written"])
    assert [one.name for one in jobs] == [*sorted(names), "written"]
    assert [one.enqueued for one in jobs] == [0] * len(names) + [1]
