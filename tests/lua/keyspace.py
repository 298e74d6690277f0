"""What a database holds, before and after an operation, and what was announced."""

import re
from collections.abc import Callable
from hashlib import sha1
from math import inf
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from kombu_delayq.calls import as_bytes
from kombu_delayq.results import Heads, Offer, Waiting
from kombu_delayq.store import DelayStore

#: Some time in the past, ms since the epoch, and one that no test lives to see.
PAST_MS = 1_000_000_000_000.0
FUTURE_MS = 4_102_444_800_000.0

Contents = dict[bytes, Any]

DUE, BACKUP, ORDER, TWINS = (f"delayq:{{q}}:{what}" for what in ("due", "backup", "order", "twins"))

#: Ids that an operation might take for something else. Some look like the id of a twin; one is no UTF-8.
ODD_IDS = [
    *("", "~", "i~", "~0123456789abcdef", "i~0123456789abcdef", "i~0123456789abcdeg"),
    *("\x7f", "\x7f00000001i", "ü", "\udcff", "\0", "\r\n$5\r\n", "i j", "*?[", "(i", "[i", "+", "-", "n" * 5000),
]

#: Bounds of due times, each with what is between them of messages due 0, 1, 1, 2 and 3 ms after FUTURE_MS.
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
    """Reads every key of a database, as bytes; ``client`` must not decode."""
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
    }
    return {key: readers[client.type(key)](key) for key in client.keys("*")}


def clock_ms(client: redis.Redis) -> float:
    """Redis's clock, ms since the epoch."""
    seconds, microseconds = client.time()
    return float(seconds) * 1000 + float(microseconds) / 1000


def waiting(identity: str, due_ms: float = FUTURE_MS, body: str | bytes = "", priority: int = 0) -> Offer:
    """Makes an offer, by default of a message that is not due while the test runs; its body tells its id."""
    return Offer(identity, repr(due_ms), priority, body or f"body of {identity}")


def odd(identity: str, body: str = "", due_ms: float = FUTURE_MS, priority: int = 0) -> Offer:
    """Makes an offer with an id of any bytes, written with surrogates."""
    return Offer(as_bytes(identity), repr(due_ms), priority, body or "body")  # type: ignore[arg-type]


def twin_id(identity: str, body: str, priority: int = 0) -> str:
    """Returns under which id a message is stored beside another of its id."""
    digest = sha1(f"{priority}{body}".encode(), usedforsecurity=False).hexdigest()
    return f"{identity}~{digest[:16]}"


def by_queue(heads: Heads) -> dict[str, float]:
    """Returns when the next message of each queue is due, where all are in one form of backup."""
    assert len({form.backup for form in heads.due_ms}) <= 1
    return {form.queue: due_ms for form, due_ms in heads.due_ms.items()}


def only(store: DelayStore, identity: str) -> Waiting:
    """Returns the one message that waits under an id."""
    [message] = store.get(["q"], [identity])[identity]
    return message


def refuses_a_key_of_the_wrong_type(store: DelayStore, key: str, act: Callable[[], Any]) -> None:
    """Puts somebody else's key in the way: the error names it, and nothing changes."""
    store.client.delete(key)
    store.client.sadd(key, "somebody else's")  # a type that no operation keeps
    before = contents(store.client)
    with pytest.raises(ResponseError, match="WRONGTYPE key " + re.escape(key)):
        act()
    assert contents(store.client) == before


def opened(value: bytes) -> bytes:
    """Returns priority and body of a value in the backup, whether it is marked or not."""
    return value[9:] if value.startswith(b"\x7f") else b"0" + value


def popped(client: redis.Redis, key: str) -> list[bytes]:
    """Takes all messages of a list, in the order in which a consumer gets them."""
    bodies = []
    while (body := client.rpop(key)) is not None:
        bodies.append(body)
    return bodies


class Ear:
    """Hears what is published on a channel."""

    END = b"-- end --"

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(channel)
        self.heard()

    def heard(self) -> list[str]:
        """Returns what was published since the last call."""
        # Redis sends subscribers everything in order: what comes after the end has not been published yet.
        while not self._client.publish(self._channel, self.END):
            self._pubsub.get_message(timeout=0.1)
        heard = []
        while True:
            message = self._pubsub.get_message(timeout=5.0)
            if message is not None:
                if message["data"] == self.END:
                    return heard
                heard.append(message["data"].decode())

    def close(self) -> None:
        """Ends the subscription."""
        self._pubsub.close()
