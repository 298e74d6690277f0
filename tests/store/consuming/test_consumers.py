"""Consumers as the store knows them, and what they hold."""

from math import inf

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.consumers import consumer_of
from kombu_delayq.store.types import ConsumerLease
from tests.support.store.consuming import CONSUMED, ME, OTHER, end_lease, fetch, lives
from tests.support.store.keyspace import KEYS, clock_ms


@pytest.fixture
def layout() -> str:
    """Consuming does not regard the layout."""
    return "hash"


@pytest.mark.parametrize(
    ("tag", "consumer"),
    [
        (f"{ME}.1", ME),
        ("fe80::1:7:0000abcd.12345", "fe80::1:7:0000abcd"),
        ("a.b.c:1:0000abcd.7", "a.b.c:1:0000abcd"),
        ("0c6b3e5c-3a3f-4b60-9d0c-3c1d0c0a3f11", ""),
        (f"{ME}.", ""),
        (f"{ME}.x", ""),
        ("host:1.5", ""),
        ("", ""),
    ],
)
def test_a_tag_names_its_consumer(tag: str, consumer: str) -> None:
    """A tag of ours names the consumer that took the message, a tag of kombu's own nobody."""
    assert consumer_of(tag) == consumer


def test_consumers_are_listed_by_the_end_of_their_leases(store: DelayStore) -> None:
    """All consumers are returned with the time that they have left and their queues; those that end first first."""
    before_ms = clock_ms(store.client)
    lives(store, ME, OTHER, queues=("b", "a"))
    end_lease(store, OTHER)
    other, me = store.consumers.all()
    assert (other.name, me.name) == (OTHER, ME)
    assert (other.queues, me.queues) == (["a", "b"], ["a", "b"])
    assert -30_000 < other.left_ms <= -1000
    assert 0 < me.left_ms <= store.options.consumer_ttl * 1000
    now_ms, ended, _ = store.consumers.ended()
    assert [(lease.name, lease.queues) for lease in ended[KEYS.slot_group("a")]] == [(OTHER, ["a"])]
    assert before_ms <= now_ms <= clock_ms(store.client)


def test_a_consumer_that_is_fenced_off_has_no_time_left(store: DelayStore) -> None:
    """While what it held is given back, a consumer is listed as one whose lease has ended for ever."""
    lives(store, ME, OTHER)
    end_lease(store, OTHER)
    store.consumers.fence([ME, OTHER], "q")
    assert store.consumers.all()[0][:3] == (OTHER, -inf, ["q"])
    assert [lease[:3] for lease in store.consumers.ended().leases[KEYS.slot_group("q")]] == [(OTHER, -inf, ["q"])]


@pytest.mark.parametrize(
    ("name", "host", "pid"),
    [(ME, "host", "1"), ("fe80::1:77:0000abcd", "fe80::1", "77"), ("no:name", "no", ""), ("", "", "")],
)
def test_a_name_tells_host_and_process(name: str, host: str, pid: str) -> None:
    """A consumer's host and process are read from its name; a name of another layout is no error."""
    lease = ConsumerLease(name, 0.0, [])
    assert (lease.host, lease.pid) == (host, pid)


@pytest.mark.parametrize("value", [None, b"no JSON", b"{}", b'"q"', b"[1, null]", b"\xff"])
def test_queues_that_cannot_be_read_are_none(store: DelayStore, value: bytes | None) -> None:
    """A consumer whose queues are not noted, or by something else than a list of names, is listed without queues."""
    lives(store, ME, OTHER)
    store.client.hdel(CONSUMED, ME)
    if value is not None:
        store.client.hset(CONSUMED, ME, value)
    assert {lease.name: lease.queues for lease in store.consumers.all()} == {ME: [], OTHER: ["q"]}


def test_what_consumers_hold_is_found(store: DelayStore) -> None:
    """All messages of a consumer are found in the order of taking, and none of another, however similar their names."""
    names = ["a*b:1:00000000", "axb:1:00000000", "a*b:1:00000000.5:1:00000000", "[x]:1:00000000", "h\\:1:00000000"]
    counts = dict(zip(names, (700, 3, 3, 3, 0), strict=True))
    lives(store, *names)
    for name, count in counts.items():
        store.client.lpush("q", *("1" for _ in range(count)), "0")
        assert len(fetch(store, count, name=name)) == count
    tags = {name: [f"{name}.{at}" for at in range(1, count + 1)] for name, count in counts.items() if count}
    assert [store.consumers.tags_of([name], "q") for name in tags] == [{name: found} for name, found in tags.items()]
    assert store.consumers.tags_of(names[-1:], "q") == {}
    assert store.consumers.tags_of(names[:3], "q") == {name: tags[name] for name in names[:3]}


def test_messages_in_hand_are_counted(store: DelayStore) -> None:
    """Each message in hand counts for its consumer, whether that lives or not, or for stock kombu."""
    assert store.consumers.counts() == {}
    lives(store, ME, OTHER)
    store.client.lpush("q", *("1" for _ in range(1500)))
    fetch(store, 1500)
    store.client.zadd("unacked_index:{q}", {"of stock": 1, "of stock too": 2, f"{OTHER}.7": 3})
    assert store.consumers.counts() == {ME: 1500, OTHER: 1, "": 2}


def test_what_is_noted_of_messages_is_read(store: DelayStore) -> None:
    """The notes of tags come in their order, without those that are held no more."""
    lives(store)
    store.client.lpush("q", "1", "2")
    first, second = (taken.tag for taken in fetch(store))
    assert store.consumers.notes([second, "unknown", first], "q") == [(second, b'[2,"","q"]'), (first, b'[1,"","q"]')]
