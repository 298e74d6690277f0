"""What is kept in Redisson's layout, byte for byte."""

import math
import struct

import pytest

from kombu_delayq.cluster import SlotKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, contents, look, waiting
from tests.support.store.layouts import redisson_only

pytestmark = redisson_only

#: Names of queues, each with the name that Redisson gives it between its own and the rest.
NAMES = {
    "plain": "{plain}",
    "with space": "{with space}",
    "": "{}",
    "{tag}": "{tag}",
    "{tag}.more": "{tag}.more",
    "a}b{c": "a}b{c",
    "a}b": "{a}b}",
    "ü": "{ü}",
}


def test_one_message_makes_exactly_redissons_keys_and_two_beside(store: DelayStore) -> None:
    """On an empty database an offer makes ZSET and LIST with one entry, the count and the index of ids."""
    assert store.delivery.offer("q", Offer("i", "4102444800123.457", 6, "body")) == ("first", 1, 0, 0)
    entry = b"\x07\0\0\0\x01\x06\x01\0" + b"\x04\0\0\0\0\0\0\0" + b"body"
    assert contents(store.client) == {
        b"redisson_delay_queue_timeout:{q}": [(entry, 4102444800124.0)],
        b"redisson_delay_queue:{q}": [entry],
        b"delayq:{q}:notes": {b"order": b"1", b"tail": entry[:9]},
        b"delayq:{q}:ids": {b"i": struct.pack("<d", 4102444800124.0) + entry[:9], b"\0n" + entry[:9]: b"i"},
        b"{delayq}:queues": {b"q"},
    }


#: Prefixes and queues that the server of the tests allows together.
NAMED = [(prefix, queue) for prefix in ("", "app:", "{app}:") for queue in NAMES if SlotKeys(prefix).is_usable(queue)]


@pytest.mark.parametrize(("prefix", "queue"), NAMED)
def test_keys_are_named_as_redisson_names_them(make_store: MakeStore, prefix: str, queue: str) -> None:
    """Redisson puts braces round the name of a list that has no opening one; to it the prefix is part of the name."""
    store = make_store(keys=Keys(prefix))
    store.delivery.offer(queue, waiting("i"))
    tagged = f"{{{prefix}{queue}}}" if "{" not in prefix + queue else prefix + queue
    assert prefix or tagged == NAMES[queue]
    names = {
        key.decode()
        for key in contents(store.client)
        if not key.startswith((f"{prefix}delayq:".encode(), f"{prefix}{{delayq}}".encode()))
    }
    assert names == {f"redisson_delay_queue_timeout:{tagged}", f"redisson_delay_queue:{tagged}"}
    assert RedissonKeys(store.keys).channel(queue) == f"redisson_delay_queue_channel:{tagged}"


@pytest.mark.parametrize("body", [b"", b"x", b"\x07" * 40, b"\x08" * 40, b"\xff" * 40, b"\0" * 40, b"y" * 100_000])
def test_an_entry_is_one_to_every_redisson(store: DelayStore, body: bytes) -> None:
    """ZSET and LIST have the same entries, which old and new versions of Redisson open, each in its own way."""
    for priority in range(10):
        for n in range(30):
            store.delivery.offer("q", Offer(f"{priority}.{n}", repr(FUTURE_MS + n + 0.25), priority, body))
    due_of = dict(store.client.zrange(RedissonKeys(store.keys).timeout("q"), 0, -1, withscores=True))
    entries = store.client.lrange(RedissonKeys(store.keys).listed("q"), 0, -1)
    assert len(set(entries)) == len(entries) == 300
    assert set(entries) == set(due_of)
    assert {due_ms - FUTURE_MS for due_ms in due_of.values()} == set(range(1, 31))
    for entry in entries:
        double, length = struct.unpack_from("<dQ", entry)
        assert math.isfinite(double)
        assert (length, entry[16:]) == (len(body), body)
        number, _, length = struct.unpack_from("<B7sQ", entry)
        assert (number, length) == (7, len(body))
    opened = "local _, message = struct.unpack(ARGV[1], ARGV[2]) return message"
    for form in ("dLc0", "Bc0Lc0"):
        assert store.client.eval(opened, 0, form, entries[-1]) == body


def test_entries_of_one_due_time_sort_as_they_were_offered(store: DelayStore) -> None:
    """Also beyond 256 and 65,536 messages, the bytes of an entry put it behind those before."""
    for count in (250, 65_530):
        store.delivery.offer("q", waiting("first"))
        store.client.hset(RedissonKeys(store.keys).notes("q"), "order", count)
        names = [f"{n}" for n in range(20)]
        store.delivery.offer("q", *(waiting(name) for name in names))
        assert [each[0] for each in look(store)[b"waiting in q"]][1:] == names
        store.queues.purge("q")
