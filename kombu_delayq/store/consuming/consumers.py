"""The store's operations on consumers: their leases, and what they hold."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.message.pages import pages
from kombu_delayq.store.client import StorePart
from kombu_delayq.store.consuming.taking import PAGE
from kombu_delayq.store.keys import glob_escaped
from kombu_delayq.store.types import hidden

#: In place of the host in the names of leases for consumers over HTTP, see ``lent_name``.
LENT = "http"


class ConsumerLease(NamedTuple):
    """A consumer as Redis knows it.

    Attributes:
        name: ``host:pid:random``.
        left_ms: Time until its lease ends; negative once it has ended, ``-inf`` while what it held is reclaimed.
        queues: Names of the queues that it consumes.
    """

    name: str
    left_ms: float
    queues: list[str]

    @property
    def is_lent(self) -> bool:
        """Whether it is no process, but a lease that a consumer over HTTP has for the messages of one take."""
        return self.host == LENT and not self.name.rpartition(":")[2].isalnum()

    @property
    def host(self) -> str:
        """Name of the host on which it runs."""
        return self.name.rsplit(":", 2)[0]

    @property
    def pid(self) -> str:
        """Number of its process on that host; empty for a name of another form."""
        return (self.name.rsplit(":", 2)[1:-1] or [""])[0]


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


def lent_name(caller: str, lease: str) -> str:
    """Returns the name of the consumer under which messages are lent to a consumer over HTTP.

    Args:
        caller: Name of the consumer over HTTP. Another caller's lease has another name, whatever its ``lease`` is.
        lease: Number of messages and random characters, with a hyphen in between.
    """
    return f"{LENT}:{quote(caller, safe='')}:{lease}"


class Consumers(StorePart):
    """Knows which consumers live, and what those hold that do not."""

    def beat(
        self,
        consumer: str,
        queues: Sequence[str],
        tags: Sequence[str] = (),
        *,
        is_new: bool = False,
        ttl_s: float | None = None,
    ) -> bool:
        """Renews the lease of a consumer; a round trip for each 200 tags.

        Args:
            consumer: Name of the consumer.
            queues: Names of the queues that it consumes.
            tags: Delivery tags of the messages that it holds. Stock workers leave these alone as well.
            is_new: Whether the name has no lease yet.
            ttl_s: Length of the lease from now, in s; None for ``consumer_ttl``.

        Returns:
            Whether it has the lease. False if what it held is being reclaimed, or has been: then it needs another name.
            A lease that has ended without that is renewed.
        """
        ttl_s = self._client.options.consumer_ttl if ttl_s is None else ttl_s
        args = [consumer, round(ttl_s * 1000), json.dumps(sorted(queues))]
        keys = [self._keys.consumers, self._keys.consumed, self._keys.unacked_index]
        for page in [*pages(tags, PAGE)] or [[]]:
            if as_text(self._client.run("beat", keys, [*args, int(is_new), *page])) == "ended":
                return False
        return True

    def leave(self, consumer: str) -> None:
        """Forgets a consumer that holds nothing any more."""
        # No transaction: a full Redis refuses any. The lease goes last, so that a call cut short can be repeated.
        self._client.send([("HDEL", self._keys.consumed, consumer), ("ZREM", self._keys.consumers, consumer)])

    def find(self, consumer: str) -> ConsumerLease | None:
        """Returns a consumer, or None if Redis does not know it: it has left, or what it held has gone back."""
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zscore(as_bytes(self._keys.consumers), consumer)
            (seconds, microseconds), ends_ms = pipe.execute()
        if ends_ms is None:
            return None
        return self._leases(seconds * 1000 + microseconds / 1000, [(consumer.encode(), ends_ms)])[0]

    def all(self) -> list[ConsumerLease]:
        """Returns all consumers, those first whose lease ends first."""
        now_ms, rows = self._rows(-1)
        return self._leases(now_ms, rows)

    def by_queue(self) -> Counter[str]:
        """Counts the consumers that live, by queue."""
        return Counter(queue for lease in self.all() if lease.left_ms > 0 for queue in set(lease.queues))

    def ended(self) -> tuple[float, list[ConsumerLease]]:
        """Finds consumers whose lease has ended, the first thousand at most; one round trip where there are none.

        Returns:
            Redis's clock, ms since the epoch, and the consumers.
        """
        now_ms, rows = self._rows(999)
        return now_ms, self._leases(now_ms, [row for row in rows if row[1] <= now_ms])

    def fence(self, consumers: Sequence[str]) -> list[str]:
        """Keeps consumers whose lease has ended from renewing it and from taking messages, for good.

        Returns:
            The names of those consumers; the others have renewed their lease meanwhile.
        """
        pages_of = pages(consumers, PAGE)
        return [as_text(name) for page in pages_of for name in self._client.run("fence", [self._keys.consumers], page)]

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

    def counts(self) -> Counter[str]:
        """Counts the messages in hand by consumer; an empty name stands for all consumers of stock kombu."""
        tags = {as_text(tag) for page in self._all_tags("*") for tag in page}
        return Counter(map(consumer_of, tags))

    def notes(self, tags: Sequence[str]) -> list[Held]:
        """Returns those of some hundred messages that are still held."""
        notes = self._client.ask("HMGET", self._keys.unacked, *tags)
        return [Held(tag, note) for tag, note in zip(tags, notes, strict=True) if note is not None]

    def _rows(self, stop: int) -> tuple[float, list[tuple[bytes, float]]]:
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zrange(as_bytes(self._keys.consumers), 0, stop, withscores=True)
            (seconds, microseconds), rows = pipe.execute()
        return seconds * 1000 + microseconds / 1000, rows

    def _leases(self, now_ms: float, rows: Sequence[tuple[bytes, float]]) -> list[ConsumerLease]:
        if not rows:
            return []
        queues = self._client.redis.hmget(as_bytes(self._keys.consumed), [name for name, _ in rows])
        return [
            ConsumerLease(as_text(name), ends_ms - now_ms if ends_ms else -inf, _names_in(names))
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
