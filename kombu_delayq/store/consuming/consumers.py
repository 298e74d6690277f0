"""The store's operations on consumers: their leases, and what they hold."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.message.pages import pages
from kombu_delayq.store.client import StorePart
from kombu_delayq.store.consuming.taking import PAGE
from kombu_delayq.store.types import hidden


class ConsumerLease(NamedTuple):
    """A consumer as Redis knows it.

    Attributes:
        name: ``host:pid:random``.
        left_ms: Time until its lease ends; negative once it has ended.
        queues: Names of the queues that it consumes.
    """

    name: str
    left_ms: float
    queues: list[str]


class Held(NamedTuple):
    """A message that a consumer holds.

    Attributes:
        tag: Its delivery tag.
        note: What kombu keeps of it: JSON of the message, its exchange and its routing key.
    """

    tag: str
    note: bytes | str

    def __repr__(self) -> str:
        return f"Held(tag={self.tag!r}, note={hidden(self.note)})"


def consumer_of(tag: str) -> str:
    """Returns the name of the consumer that made a delivery tag, or an empty text for a tag of kombu's own."""
    name, _, number = tag.rpartition(".")
    return name if number.isdecimal() and name.count(":") >= 2 else ""


class Consumers(StorePart):
    """Knows which consumers live, and what those hold that do not."""

    def beat(self, consumer: str, queues: Sequence[str], tags: Sequence[str] = (), *, is_new: bool = False) -> bool:
        """Renews the lease of a consumer for ``consumer_ttl``; a round trip for each 200 tags.

        Args:
            consumer: Name of the consumer.
            queues: Names of the queues that it consumes.
            tags: Delivery tags of the messages that it holds. Stock workers leave these alone as well.
            is_new: Whether the name has no lease yet.

        Returns:
            Whether it has the lease; False if the lease has ended.
        """
        args = [consumer, round(self._client.options.consumer_ttl * 1000), json.dumps(sorted(queues))]
        keys = [self._keys.consumers, self._keys.consumed, self._keys.unacked_index]
        for page in [*pages(tags, PAGE)] or [[]]:
            if as_text(self._client.run("beat", keys, [*args, int(is_new), *page])) == "ended":
                return False
        return True

    def leave(self, consumer: str) -> None:
        """Forgets a consumer that holds nothing any more."""
        name = as_bytes(consumer)
        with self._client.redis.pipeline(transaction=True) as pipe:
            pipe.zrem(as_bytes(self._keys.consumers), name)
            pipe.hdel(as_bytes(self._keys.consumed), name)
            pipe.execute()

    def all(self) -> list[ConsumerLease]:
        """Returns all consumers, those first whose lease ends first."""
        return self._read(0, -1)

    def ended(self) -> list[ConsumerLease]:
        """Returns consumers whose lease has ended, the first hundred at most. Where there are none, this costs little."""
        return [lease for lease in self._read(0, 99) if lease.left_ms <= 0]

    def held(self, consumer: str) -> Iterator[list[Held]]:
        """Yields the messages that a consumer holds, page by page."""
        pattern = "".join(f"\\{char}" if char in "*?[]\\" else char for char in consumer) + ".*"
        cursor = 0
        index, unacked = as_bytes(self._keys.unacked_index), as_bytes(self._keys.unacked)
        while True:
            cursor, found = self._client.redis.zscan(index, cursor, match=as_bytes(pattern), count=1000)
            tags = [tag for tag, _ in found]
            for page in pages(tags, PAGE):
                notes = self._client.redis.hmget(unacked, page)
                yield [Held(as_text(tag), note) for tag, note in zip(page, notes, strict=True) if note is not None]
            if not cursor:
                return

    def _read(self, start: int, stop: int) -> list[ConsumerLease]:
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zrange(as_bytes(self._keys.consumers), start, stop, withscores=True)
            (seconds, microseconds), rows = pipe.execute()
        if not rows:
            return []
        now_ms = seconds * 1000 + microseconds / 1000
        queues = self._client.redis.hmget(as_bytes(self._keys.consumed), [name for name, _ in rows])
        return [
            ConsumerLease(as_text(name), ends_ms - now_ms, json.loads(names) if names else [])
            for (name, ends_ms), names in zip(rows, queues, strict=True)
        ]
