"""Bulk jobs on a server whose memory is full: nothing is half done, and a job can end, which frees memory."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_results import Enqueued, JobRun
from tests.store.test_full_memory import FULL, SIZE, fill, relieve, store
from tests.support.store.jobs import GUARD, STAGED, TTL_MS, begun, claim, now, published, several
from tests.support.store.keyspace import contents, popped, waiting

__all__ = ["store"]  # the fixture: a store on a server that the test may fill

ACTS: dict[str, Callable[[DelayStore, JobRun], Any]] = {
    "new_run": lambda store, job: store.new_run(),
    "begin of another job": lambda store, job: store.begin(job._replace(name="other")),
    "begin of a later run": lambda store, job: store.begin(job._replace(run=job.run + 1)),
    "now": lambda store, job: store.enqueue("q", job, several(3, "j")),
    "later": lambda store, job: store.enqueue("q", job, [waiting("j"), waiting("k", priority=3)]),
    "claim": lambda store, job: store.enqueue("q", job, [claim("j")]),
    "staged": lambda store, job: store.enqueue("q", job._replace(staged=True), several(3, "j")),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_write_is_refused_whole(store: DelayStore, act: str) -> None:
    """On a full server no operation of a job that needs memory changes anything; relieved, it works."""
    job = begun(store)
    store.enqueue("q", job, several(3))
    before = contents(store.client)
    fill(store)
    for _ in range(2):
        with pytest.raises(ResponseError, match=FULL):
            ACTS[act](store, job)
    assert contents(store.client) == before
    relieve(store)
    ACTS[act](store, job)
    assert contents(store.client) != before


def test_a_server_that_fills_up_keeps_whole_chunks_only(store: DelayStore) -> None:
    """Of chunks, until and after the memory is full, each is sent whole or raises, and can be sent again."""
    job = begun(store)
    chunks = [[now(f"{n:02}{k}", f"{n:02}{k}" + "x" * SIZE) for k in range(3)] for n in range(40)]
    store.client.config_set("maxmemory", store.client.info("memory")["used_memory"] + 40 * SIZE)
    sent, refused = 0, []
    for chunk in chunks:
        try:
            sent += store.enqueue("q", job, chunk).fresh
        except ResponseError as error:
            refused.append(str(error))
            assert store.client.llen("q") == store.client.scard(GUARD) == sent
    assert sent
    assert refused
    assert all(FULL in each for each in refused)
    relieve(store)
    for chunk in chunks:
        store.enqueue("q", job, chunk)
    ids = sorted(body[:3].decode() for body in popped(store.client, "q"))
    assert ids == [f"{n:02}{k}" for n in range(40) for k in range(3)]


@pytest.mark.parametrize("word", ["committed", "aborted"])
@pytest.mark.parametrize("staged", [False, True])
def test_a_job_ends_on_a_full_server(store: DelayStore, word: str, staged: bool) -> None:
    """A job can be committed and aborted while the memory is full, which may free what is missing."""
    job = begun(store, staged=staged)
    store.enqueue("q", job, several(3))
    fill(store)
    assert store.finish(job, word) == ("publishing" if staged and word == "committed" else word)
    assert store.client.exists(GUARD) == (word == "aborted" and not staged)
    assert store.client.exists(STAGED) == (word == "committed" and staged)
    relieve(store)
    assert store.enqueue("q", job, several(3)) == Enqueued(word)


def test_publishing_is_refused_whole(store: DelayStore) -> None:
    """On a full server no staged message is sent and none is lost; relieved, each is sent once."""
    job = begun(store, staged=True)
    store.enqueue("q", job, [*several(3), waiting("later")])
    store.finish(job, "committed")
    before = contents(store.client)
    fill(store)
    for _ in range(2):
        with pytest.raises(ResponseError, match=FULL):
            store.publish(job)
    assert contents(store.client) == before
    relieve(store)
    assert published(store, job) == 4
    assert (store.size("q"), len(popped(store.client, "q"))) == (1, 3)
    assert store.client.pttl("delayq:job:j") <= TTL_MS
