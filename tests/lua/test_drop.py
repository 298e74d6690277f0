"""``drop.lua``: removes what Redis remembers of a bulk job."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.jobs import JOB, WHOLE, begun, joined, several
from tests.support.store.keyspace import contents, refuses_a_key_of_the_wrong_type, waiting


@pytest.mark.parametrize("word", ["committed", "aborted"])
def test_nothing_is_left_of_a_job_that_has_ended(store: DelayStore, word: str) -> None:
    """The messages stay, and nothing else; the next run of the name sends all rows anew."""
    job = begun(store)
    store.jobs.enqueue("q", job, [waiting("i"), *several(2)])
    store.jobs.finish(job, word)
    assert store.jobs.drop("j") == "dropped"
    assert not [key for key in contents(store.client) if b"j:" in key or key.endswith(b":j")]
    assert store.jobs.enqueue("q", begun(store), several(2)).fresh == 2
    assert store.client.llen("q") == 4
    assert store.queues.size("q") == 1


def test_a_job_that_has_not_ended_is_refused(store: DelayStore) -> None:
    """Unless it is dropped at any state, nothing changes; after that its tasks are refused."""
    job = begun(store)
    store.jobs.enqueue("q", job, several(2))
    before = contents(store.client)
    assert store.jobs.drop("j") == "open"
    assert contents(store.client) == before
    assert store.jobs.drop("j", at_any=True) == "dropped"
    assert store.jobs.enqueue("q", job, several(3)).word == "unknown"


def test_staged_messages_that_are_being_sent_are_kept(store: DelayStore) -> None:
    """A committed job that has messages to send is refused; at any state it goes with them."""
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, several(2))
    store.jobs.finish(job, "committed")
    assert store.jobs.drop("j") == "publishing"
    assert store.jobs.publish(job).fresh == 2
    assert store.jobs.drop("j") == "dropped"
    other = begun(store, staged=True)
    store.jobs.enqueue("q", other, several(2))
    assert store.jobs.drop("j", at_any=True) == "dropped"
    assert not [key for key in contents(store.client) if b"staged" in key]


def test_a_job_that_is_not_remembered(store: DelayStore) -> None:
    """Of a job of which Redis knows nothing, ids that are withheld from it stay so."""
    assert store.jobs.drop("j") == "unknown"
    store.jobs.withhold("j", 600_000, [("q", "i")])
    before = contents(store.client)
    assert store.jobs.drop("j", at_any=True) == "unknown"
    assert contents(store.client) == before


@pytest.mark.parametrize("key", dict.fromkeys([WHOLE, JOB]))
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    joined(store, begun(store))
    as_a_whole = {WHOLE} if key != WHOLE else set()  # it goes before its parts
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.jobs.drop("j", at_any=True), stepped=as_a_whole)
