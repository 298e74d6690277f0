"""Whatever a queue, an id or a body is made of, messages pass through the store unchanged."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.forms import hash_only, list_only
from tests.support.store.keyspace import (
    BACKUP,
    DUE,
    FUTURE_MS,
    PAST_MS,
    TWINS,
    Ear,
    announced,
    by_queue,
    in_form,
    popped,
    waiting,
)

NAMES = [
    "plain",
    "with space",
    "ünïcödé ✓",
    "{tag}",
    "{tag}.more",
    "a}b{c",
    "{}",
    "line\nbreak",
    "*?[a-z]",
    "",
    "~",
    "n" * 5000,
]


@pytest.mark.parametrize("queue", NAMES)
def test_any_queue_name(store: DelayStore, ear: Ear, queue: str) -> None:
    """A queue of any name is announced, known, counted, transferred and purged under it."""
    store.offer(queue, waiting("later"))
    assert ear.heard() == [announced(store, FUTURE_MS, queue)]
    store.offer(queue, waiting("i", PAST_MS))
    assert store.queues() == [queue]
    assert store.lead("name").queues == [queue]
    assert by_queue(store.heads([queue])) == {queue: PAST_MS}
    assert store.transfer(queue).moved == 1
    assert (store.stats(queue).delayed, store.stats(queue).ready) == (1, 1)
    assert popped(store.client, queue) == [b"body of i"]
    assert store.purge(queue) == 1


@hash_only
def test_names_that_differ_in_braces_only_are_two_queues(store: DelayStore) -> None:
    """The queues ``a`` and ``{a}`` share no message."""
    store.offer("a", waiting("i", PAST_MS, "of a"))
    store.offer("{a}", waiting("i", PAST_MS, "of {a}"))
    for queue in ("a", "{a}"):
        assert store.transfer(queue).moved
        assert popped(store.client, queue) == [f"of {queue}".encode()]


@list_only
def test_names_that_differ_in_braces_only_are_one_queue_to_redisson(store: DelayStore) -> None:
    """Redisson names its keys of the queues ``a`` and ``{a}`` alike, and so do we: they cannot be used side by side."""
    assert store.keys.stored("a", "list")[:2] == store.keys.stored("{a}", "list")[:2]
    store.offer("a", waiting("i", PAST_MS))
    assert (store.size("a"), store.size("{a}")) == (1, 1)


@pytest.mark.parametrize("identity", [*NAMES, "0", "00000001", "-1", "i~", "i~0123456789abcdef", "\0", "\r\n$5\r\n"])
def test_any_id(store: DelayStore, identity: str) -> None:
    """A message of any id is stored once, told from another with the same id, and transferred."""
    one, two = (waiting(identity, PAST_MS, body) for body in ("one", "two"))
    assert store.offer("q", one, two, one, two)[1:] == (1, 2, 1)
    assert store.transfer("q").moved == 2
    assert popped(store.client, "q") == [b"one", b"two"]
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BACKUP, TWINS)))


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n", bytes(range(256)), "ünïcödé ✓", b"9" * 10, "x" * 5_000_000])
def test_any_body(store: DelayStore, body: str | bytes) -> None:
    """A body of any bytes and any length arrives as it was."""
    store.offer("q", Offer("i", repr(PAST_MS), 9, body))
    assert store.offer("q", Offer("i", repr(PAST_MS), 9, body)).repeated == 1
    store.transfer("q")
    assert popped(store.client, "q\x06\x169") == [body.encode() if isinstance(body, str) else body]


IDS = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60, deadline=None
)
@given(st.lists(st.tuples(IDS, st.binary(max_size=12)), max_size=12, unique=True))
def test_any_messages_arrive_once_in_order(store: DelayStore, messages: list[tuple[str, bytes]]) -> None:
    """Different messages of any ids and bodies, due at one time, all arrive, once, in order."""
    store.client.flushall()
    for identity, body in messages:
        store.offer("q", Offer(identity, repr(PAST_MS), 0, body))
    store.transfer("q")
    assert popped(store.client, "q") == [body for _, body in messages]
