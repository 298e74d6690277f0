"""``claim.lua``: claims the work of a request with an idempotency key."""

from celery_ext.serve.store import Answers
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents

KEY = "delayq:answer:k"


def test_the_first_caller_does_the_work(store: DelayStore) -> None:
    """A new key is claimed at the time of Redis, and kept for a day."""
    before_ms = store.now_ms()
    claim = store.part(Answers).claim("k", "digest")
    assert (claim.word, claim.answer) == ("first", b"")
    assert before_ms <= claim.at_ms <= store.now_ms()
    assert 86_000_000 < store.client.pttl(KEY) <= 86_400_000


def test_nobody_works_on_it_beside(store: DelayStore) -> None:
    """While one caller works on a key, another gets nothing but the time of the first claim."""
    first = store.part(Answers).claim("k", "digest")
    before = contents(store.client)
    second = store.part(Answers).claim("k", "digest")
    assert (second.word, second.at_ms) == ("running", first.at_ms)
    assert contents(store.client) == before


def test_a_caller_that_has_gone_is_followed(store: DelayStore) -> None:
    """When the hold of the first caller is over, the next one works, and learns when the request came first."""
    first = store.part(Answers).claim("k", "digest")
    store.client.hset(KEY, "till", store.now_ms() - 1)
    second = store.part(Answers).claim("k", "digest")
    assert (second.word, second.at_ms) == ("again", first.at_ms)
    assert store.part(Answers).claim("k", "digest").word == "running"
    assert not store.part(Answers).end_claim("k", first, "keep", b"late")
    assert store.part(Answers).end_claim("k", second, "keep", b"answer")


def test_another_request_does_not_get_the_key(store: DelayStore) -> None:
    """The same key with another digest is refused, before and after there is an answer."""
    claim = store.part(Answers).claim("k", "digest")
    assert store.part(Answers).claim("k", "another").word == "other"
    store.part(Answers).end_claim("k", claim, "keep", b"answer")
    assert store.part(Answers).claim("k", "another").word == "other"


def test_the_answer_is_kept(store: DelayStore) -> None:
    """After the work everybody gets its answer, byte for byte."""
    store.part(Answers).end_claim("k", store.part(Answers).claim("k", "digest"), "keep", b"\x00\xff{}")
    claim = store.part(Answers).claim("k", "digest")
    assert (claim.word, claim.answer) == ("kept", b"\x00\xff{}")
