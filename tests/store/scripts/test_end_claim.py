"""``end_claim.lua``: ends the work on a request with an idempotency key."""

from celery_ext.serve.store import Answers
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents


def test_what_was_not_done_is_forgotten(store: DelayStore) -> None:
    """After ``forget`` the key is as if it had never come, also for another request."""
    assert store.part(Answers).end_claim("k", store.part(Answers).claim("k", "digest"), "forget")
    assert contents(store.client) == {}
    assert store.part(Answers).claim("k", "another").word == "first"


def test_what_nobody_knows_is_begun_again(store: DelayStore) -> None:
    """After ``yield`` the next caller works at once, and learns when the request came first."""
    first = store.part(Answers).claim("k", "digest")
    assert store.part(Answers).end_claim("k", first, "yield")
    second = store.part(Answers).claim("k", "digest")
    assert (second.word, second.at_ms) == ("again", first.at_ms)


def test_only_the_caller_that_works_ends_its_claim(store: DelayStore) -> None:
    """A caller whose claim another has taken over changes nothing; nor does one whose key has expired."""
    first = store.part(Answers).claim("k", "digest")
    store.part(Answers).end_claim("k", first, "yield")
    store.part(Answers).claim("k", "digest")
    before = contents(store.client)
    assert not store.part(Answers).end_claim("k", first, "keep", b"answer")
    assert not store.part(Answers).end_claim("k", first, "forget")
    assert contents(store.client) == before
    store.client.flushall()
    assert not store.part(Answers).end_claim("k", first, "keep", b"answer")
    assert contents(store.client) == {}
