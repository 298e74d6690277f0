"""``choose.lua``: decides which run of a bulk job has its files in the far tier."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import JobRun
from tests.support.store.jobs import TTL_MS, WHOLE, begun
from tests.support.store.keyspace import contents, refuses_a_key_of_the_wrong_type

FRESH_MS = 60_000.0


def test_the_first_run_that_asks_is_chosen(store: DelayStore) -> None:
    """A later run that asks gets the run that was chosen, and its job lives for its time from then on."""
    first = begun(store)
    assert store.jobs.choose(first, FRESH_MS) == first.run
    later = begun(store)
    before = contents(store.client)
    store.client.pexpire(WHOLE, TTL_MS // 10)
    assert store.jobs.choose(later, FRESH_MS) == first.run
    assert contents(store.client) == before
    assert TTL_MS // 2 < store.client.pttl(WHOLE) <= TTL_MS


def test_a_choice_that_is_old_is_made_anew(store: DelayStore) -> None:
    """After its time, the files of the run that was chosen may be gone: the run that asks is chosen."""
    first = begun(store)
    store.jobs.choose(first, FRESH_MS)
    chosen_at = float(store.client.hget(WHOLE, "chosen_at") or 0)
    store.client.hset(WHOLE, "chosen_at", repr(chosen_at - FRESH_MS - 1))
    later = begun(store)
    assert store.jobs.choose(later, FRESH_MS) == later.run


@pytest.mark.parametrize("word", ["committed", "aborted", "superseded", "unknown"])
def test_a_run_that_may_not_write_changes_nothing(store: DelayStore, word: str) -> None:
    """A run of a job that has ended, that a later run has taken over, or that has not begun, is refused."""
    job = JobRun("j", 1, TTL_MS) if word == "unknown" else begun(store)
    if word == "superseded":
        begun(store)
    elif word != "unknown":
        store.jobs.finish(job, word)
    before = contents(store.client)
    assert store.jobs.choose(job, FRESH_MS) == word
    assert contents(store.client) == before


def test_a_key_of_the_wrong_type_is_named(store: DelayStore) -> None:
    """Where somebody else's key is in the way, the error names it."""
    refuses_a_key_of_the_wrong_type(store, WHOLE, lambda: store.jobs.choose(JobRun("j", 1, TTL_MS), FRESH_MS))
