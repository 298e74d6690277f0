"""The store's operations on consumers: their leases, and what they hold."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.message.pages import pages
from kombu_delayq.store.client import StorePart
from kombu_delayq.store.consuming.taking import PAGE
from kombu_delayq.store.keys import glob_escaped
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
        """Returns consumers whose lease has ended, the first hundred at most. Without any, this costs little."""
        return [lease for lease in self._read(0, 99) if lease.left_ms <= 0]

    def tags_of(self, consumers: Collection[str]) -> dict[str, list[str]]:
        """Finds what consumers hold, by going once through all messages that anybody holds.

        Returns:
            The tags of each consumer that holds any, those first that it took first.
        """
        pattern = f"{glob_escaped(*consumers)}.*" if len(consumers) == 1 else "*"
        found: dict[str, list[str]] = {}
        for page in self._all_tags(pattern):
            for tag in map(as_text, page):
                if (consumer := consumer_of(tag)) in consumers:
                    found.setdefault(consumer, []).append(tag)
        return {consumer: sorted(set(tags), key=_number_of) for consumer, tags in found.items()}

    def notes(self, tags: Sequence[str]) -> list[Held]:
        """Returns those of some hundred messages that are still held."""
        notes = self._client.ask("HMGET", self._keys.unacked, *tags)
        return [Held(tag, note) for tag, note in zip(tags, notes, strict=True) if note is not None]

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
            ConsumerLease(as_text(name), ends_ms - now_ms, _names_in(names))
            for (name, ends_ms), names in zip(rows, queues, strict=True)
        ]

    def _all_tags(self, pattern: str) -> Iterator[list[Any]]:
        index, cursor = as_bytes(self._keys.unacked_index), 0
        while True:
            cursor, found = self._client.redis.zscan(index, cursor, match=as_bytes(pattern), count=1000)
            yield [tag for tag, _ in found]
            if not cursor:
                return


def _number_of(tag: str) -> int:
    return int(tag.rpartition(".")[2])


def _names_in(noted: bytes | str | None) -> list[str]:
    """Returns the names of queues in what is noted of a consumer; none where somebody else has written it."""
    try:
        found = json.loads(as_text(noted or "[]"))
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
