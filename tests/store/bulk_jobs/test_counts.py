"""What a bulk job counts: each message in the step of Redis that sends or removes it."""

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import Job, JobCounts
from tests.support.store.jobs import begun, published, several


def found(store: DelayStore, name: str = "j") -> Job:
    job = store.jobs.find(name)
    assert job is not None
    return job


def test_a_chunk_that_is_refused_counts_nothing(store: DelayStore) -> None:
    """Neither a straggler's messages nor those for which there is no room are counted."""
    left_behind = begun(store)
    job = begun(store, max_depth=2)
    assert store.jobs.enqueue("q", left_behind, several(2)).word == "superseded"
    assert store.jobs.enqueue("q", job, several(3)).word == "deep"
    one = found(store)
    assert (one.run, one.enqueued) == (job.run, 0)


def test_staged_messages_count_once_they_can_be_sent(store: DelayStore) -> None:
    """Of an aborted job, what it had staged counts no more; of a committed one, what waits is told apart."""
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, several(3))
    assert (found(store).enqueued, found(store).staged, found(store).sent) == (3, 3, 0)
    store.jobs.finish(job, "aborted")
    assert (found(store).enqueued, found(store).staged) == (0, 0)
    again = begun(store, staged=True)
    store.jobs.enqueue("q", again, several(2))
    store.jobs.finish(again, "committed")
    assert found(store).state == "publishing"
    published(store, again)
    one = found(store)
    assert (one.state, one.sent, one.staged) == ("committed", 2, 0)


def test_the_end_notes_what_the_driver_has_counted(store: DelayStore) -> None:
    """Rows and bad rows are those of the run that ended last, unknown before; after a commit they stay."""
    job = begun(store)
    assert (found(store).rows, found(store).bad) == (None, None)
    assert store.jobs.finish(job, "aborted", JobCounts(rows=9)) == "aborted"
    assert (found(store).rows, found(store).bad) == (9, 0)
    again = begun(store)
    assert found(store).ended_ms is None
    store.jobs.finish(again, "committed", JobCounts(rows=5, bad=2, dead_lettered=1, cancelled=4))
    one = found(store)
    store.jobs.finish(again, "committed", JobCounts(rows=7))
    assert found(store) == one
    assert (one.rows, one.bad, one.dead_lettered, one.cancelled) == (5, 2, 1, 4)
    assert one.ended is not None
    assert one.began <= one.ended
