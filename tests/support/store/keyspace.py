"""The contents of a database before and after an operation, and the announcements meanwhile."""

import re
from collections.abc import Callable, Collection, Iterable
from hashlib import sha1
from math import ceil, inf
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import by_id
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.message.once import Became
from kombu_delayq.store import DelayStore
from kombu_delayq.store.hash_layout import body_of, id_of
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer, QueueHeads, Waiting
from kombu_delayq.text import as_bytes, as_text


def keys_at(server: PrivateRedis) -> type[Keys]:
    """Returns the class that names the keys on a server."""
    return SlotKeys if server.slots else Keys


#: Names of the keys on a Redis Cluster, without a prefix.
KEYS = SlotKeys()
#: A time in the past, and one after the end of every test, ms since the epoch.
PAST_MS = 1_000_000_000_000.0
FUTURE_MS = 4_102_444_800_000.0

Contents = dict[bytes, Any]

DUE, BODIES, ORDER, DUPLICATES = (f"delayq:{{q}}:{what}" for what in ("due", "bodies", "order", "duplicates"))

#: Ids that an operation might take for something else. Some look like the id of a duplicate; one is not UTF-8.
ODD_IDS = [
    *("", "~", "i~", "~0123456789abcdef", "i~0123456789abcdef", "i~0123456789abcdeg"),
    *("i~k0123456789abcde", "i~k0123456789abcdg"),
    *("\x7f", "\x7f00000001i", "ü", "\udcff", "\0", "\r\n$5\r\n", "i j", "*?[", "(i", "[i", "+", "-", "n" * 5000),
]

#: Bounds of due times. Of messages a to e, due 0, 1, 1, 2 and 3 ms after FUTURE_MS, the text names those between.
BOUNDS: list[tuple[dict[str, float], str]] = [
    ({}, "abcde"),
    ({"from_ms": FUTURE_MS + 1}, "bcde"),
    ({"from_ms": FUTURE_MS + 1.001}, "de"),
    ({"to_ms": FUTURE_MS + 1}, "a"),
    ({"to_ms": FUTURE_MS + 1.001}, "abc"),
    ({"from_ms": FUTURE_MS + 1, "to_ms": FUTURE_MS + 2}, "bc"),
    ({"from_ms": FUTURE_MS + 1, "to_ms": FUTURE_MS + 1}, ""),
    ({"from_ms": 0.0, "to_ms": 1e308}, "abcde"),
    ({"from_ms": -inf, "to_ms": -inf}, ""),
    ({"from_ms": inf, "to_ms": inf}, ""),
]


def contents(client: redis.Redis) -> Contents:
    """Reads every key of a database but counters, as bytes; ``client`` must not decode."""
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"stream": client.xrange,
    }
    return {key: readers[client.type(key)](key) for key in client.keys("*") if b":counts" not in key}


def idle_for(client: redis.Redis, key: str, idle_s: int) -> None:
    """Lets a key look as if nobody had used it for so many s; ``client`` must not decode."""
    client.execute_command("RESTORE", key, max(client.pttl(key), 0), client.dump(key), "REPLACE", "IDLETIME", idle_s)


def look(store: DelayStore) -> Contents:
    """Reads a database without regard to the layout.

    In place of the keys of delayed messages the result has the messages of each known queue, in the order of their
    delivery: id, due time, priority, body.
    """
    found = contents(store.client)
    for queue in store.queues.names():
        for key in LAYOUT_OF[store.layout].keys(store.keys, queue):
            found.pop(as_bytes(key), None)
        found[b"waiting in " + as_bytes(queue)] = [message[1:5] for message in by_id.browse(store, queue)]
    return found


def outcomes(became: Iterable[Became]) -> list[str]:
    """Returns what became of messages, without the ids of those that wait."""
    return [one.outcome for one in became]


def in_form(store: DelayStore, key: str) -> str:
    """Returns the key of the store's layout that stands for a key of the default layout; any other key as it is."""
    match = re.fullmatch(r"delayq:\{(.*)\}:(due|bodies|order|duplicates)", key, re.DOTALL)
    if match is None:
        return key
    return LAYOUT_OF[store.layout].keys(store.keys, match[1])[("due", "bodies", "order", "duplicates").index(match[2])]


def kept_ms(store: DelayStore, due_ms: float) -> float:
    """Returns the due time that a store keeps: Redisson's layout has whole ms."""
    return float(ceil(due_ms)) if store.layout == "redisson" else due_ms


def announced(store: DelayStore, due_ms: float, queue: str = "q") -> str:
    """Returns what an ear hears of a new head."""
    if store.layout == "redisson":
        return f"{ceil(due_ms)} on {RedissonKeys(store.keys).channel(queue)}"
    return f"{due_ms:.17g} {queue}"


def lose_body(store: DelayStore, *ids: str) -> None:
    """Removes the bodies of messages. In Redisson's layout the entry is cut short."""
    for identity in ids:
        if store.layout == "hash":
            assert store.client.hdel(BODIES, identity) == 1
        else:
            entry, due_ms = lose_index(store, identity)
            store.client.zadd(RedissonKeys(store.keys).timeout("q"), {entry[:-1]: due_ms})


def lose_index(store: DelayStore, identity: str) -> tuple[bytes, float]:
    """Removes a message from the index of due times. Returns its member there, and when it was due."""
    message, key = only(store, identity), in_form(store, DUE)
    bodies = {body: member for member, body in bodies_of_members(store).items()}
    member = bodies[message.body or b""]
    assert store.client.zrem(key, member) == 1
    return member, message.due_ms


def bodies_of_members(store: DelayStore) -> dict[bytes, bytes | None]:
    """Returns the members of the index, each with its body."""
    members = store.client.zrange(in_form(store, DUE), 0, -1)
    if store.layout == "redisson":
        return {member: member[16:] for member in members}
    return {member: body_of(store.client.hget(BODIES, id_of(member)) or b"") for member in members}


def spoil_the_count(store: DelayStore) -> None:
    """Makes the counter of marked messages something else than a number."""
    if store.layout == "hash":
        store.client.set(ORDER, "not a number")
    else:
        store.client.hset(in_form(store, ORDER), "order", "not a number")


def clock_ms(client: redis.Redis) -> float:
    """Returns the time by Redis's clock, ms since the epoch."""
    seconds, microseconds = client.time()
    return float(seconds) * 1000 + float(microseconds) / 1000


def waiting(identity: str, due_ms: float = FUTURE_MS, body: str | bytes = "", priority: int = 0) -> Offer:
    """Makes an offer, by default of a message that is not due while the test runs; its body contains its id."""
    return Offer(identity, repr(due_ms), priority, body or f"body of {identity}")


def odd(identity: str, body: str = "", due_ms: float = FUTURE_MS, priority: int = 0) -> Offer:
    """Makes an offer with an id of any bytes, written with surrogates."""
    return Offer(as_bytes(identity), repr(due_ms), priority, body or "body")  # type: ignore[arg-type]


def duplicate_id(identity: str, body: str, priority: int = 0) -> str:
    """Returns the id under which a message is stored beside another message of its id."""
    digest = sha1(f"{priority}{body}".encode(), usedforsecurity=False).hexdigest()
    return f"{identity}~{digest[:16]}"


def by_queue(heads: QueueHeads) -> dict[str, float]:
    """Returns when the next message of each queue is due. All messages are in one layout."""
    assert len({form.layout for form in heads.due_ms}) <= 1
    return {form.queue: due_ms for form, due_ms in heads.due_ms.items()}


def only(store: DelayStore, identity: str) -> Waiting:
    """Returns the one message that waits under an id."""
    [message] = store.lookup.get(["q"], [identity])[identity]
    return message


def refuses_a_key_of_the_wrong_type(
    store: DelayStore, key: str, act: Callable[[], Any], *, stepped: Collection[str] = ()
) -> None:
    """Puts somebody else's key in the way: the error names it, and nothing changes.

    Args:
        store: The store.
        key: A key of the default layout; the key of the store's layout that stands for it is used.
        act: What is refused.
        stepped: Keys of the default layout that an earlier step of the operation may have changed.
    """
    key = in_form(store, key)
    store.client.delete(key)
    store.client.xadd(key, {"somebody": "else's"})  # a type that no operation keeps
    before = contents(store.client)
    with pytest.raises(ResponseError, match=wrong_type_of(key)):
        act()
    after = contents(store.client)
    for one in stepped:
        for name in (one, in_form(store, one)):
            before.pop(name.encode(), None)
            after.pop(name.encode(), None)
    assert after == before


def wrong_type_of(key: str) -> str:
    """Returns a pattern of errors about a key of the wrong type: those of scripts, or of the store's own commands."""
    return f"WRONGTYPE key {re.escape(key)}|[A-Z]+ {re.escape(key)}: WRONGTYPE"


def popped(client: redis.Redis, key: str) -> list[bytes]:
    """Takes all messages out of a list, in the order in which a consumer gets them."""
    bodies = []
    while (body := client.rpop(key)) is not None:
        bodies.append(body)
    return bodies


class Ear:
    """Hears what is published on a channel, and on channels that match a pattern; for these it adds the channel."""

    END = b"-- end --"

    def __init__(self, client: redis.Redis, channel: str, pattern: str = "") -> None:
        self._client = client
        self._channel = channel
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(channel)
        if pattern:
            self._pubsub.psubscribe(pattern)
        self.heard()

    def heard(self) -> list[str]:
        """Returns what was published since the last call."""
        # Redis sends everything to subscribers in order: nothing published so far comes after the end.
        while not self._client.publish(self._channel, self.END):
            self._pubsub.get_message(timeout=0.1)
        heard = []
        while True:
            message = self._pubsub.get_message(timeout=5.0)
            if message is not None:
                if message["data"] == self.END:
                    return heard
                on = f" on {as_text(message['channel'])}" if message["pattern"] else ""
                heard.append(as_text(message["data"]) + on)

    def close(self) -> None:
        """Ends the subscription."""
        self._pubsub.close()


def ear_of(store: DelayStore) -> Ear:
    """Hears a store's announcements of new heads, in the form of ``announced``."""
    return Ear(store.client, store.keys.wake, "redisson_delay_queue_channel:*")


#: Names of queues that a Redis Cluster allows: a brace needs a hash tag.
QUEUE_NAMES = ["plain", "with space", "ünïcödé ✓", "{tag}", "{tag}.more", "line\nbreak", "*?[a-z]", "~", "n" * 5000]
