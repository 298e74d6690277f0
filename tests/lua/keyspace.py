"""What a database holds, before and after an operation, and what was announced."""

from typing import Any

import redis

from kombu_delayq.results import Offer

#: Some time in the past, ms since the epoch, and one that no test lives to see.
PAST_MS = 1_000_000_000_000.0
FUTURE_MS = 4_102_444_800_000.0

Contents = dict[bytes, Any]


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
