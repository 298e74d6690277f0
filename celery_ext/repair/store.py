"""The store's operations that find and mend the damage that lost keys leave."""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from typing import Any, NamedTuple, cast

from redis.exceptions import NoPermissionError

from celery_ext.repair.keys import ControlKeys
from kombu_delayq.message import pages
from kombu_delayq.redis import Args, Key, ListKey, Rows, Stored, checked, operation
from kombu_delayq.store import PAGE, InFlight, Into, StorePart
from kombu_delayq.text import as_bytes, as_text

#: About how many entries one call of ZSCAN, HSCAN or SCAN looks at.
SCAN_INDEX, SCAN_BODIES, SCAN_KEYS = 250, 100, 1000
#: How many entries of Redisson's layout the first call looks at, which does not know their sizes; the most for
#: any call; and about the largest number of bytes.
FIRST_ENTRIES, MAX_ENTRIES, ENTRIES_BYTES = 8, 250, 300_000
#: The next page begins with the last quarter of this one, because others may have removed entries in between.
OVERLAP = 4


class ListPage(NamedTuple):
    """A page of the list of Redisson's layout.

    Attributes:
        entries: Number of entries on the page.
        size: Bytes of these entries.
        unindexed: Marks of the entries that are missing from the index.
    """

    entries: int
    size: int
    unindexed: list[bytes]


class Idle(NamedTuple):
    """A key of kombu's that nobody has used for long.

    Attributes:
        key: Its name.
        kind: Its type.
        bytes: What it takes in memory; 0 where the server does not tell.
    """

    key: str
    kind: str
    bytes: int


@operation()
def repair_index(*, keys: Stored, mend: bool, members: Args[bytes]) -> list[str]: ...
@operation(layout="hash")
def repair_bodies(*, into: Into, mend: bool, rows: Rows[tuple[bytes, str]]) -> list[str]: ...
@operation(layout="redisson")
def repair_list(*, keys: Stored, wake: Key, mend: bool, skip: int, count: int) -> list[Any]: ...
@operation()
def forget_idle(*, unused: ListKey, idle_s: float) -> str: ...


class RepairStore(StorePart):
    """Finds and mends damage. All calls are short, however much a queue holds."""

    def is_kept(self, queue: str) -> bool:
        """Whether a queue has any key of delayed messages."""
        found = self._client.send([("TYPE", key) for key in self._client.stored(queue)])
        return set(map(as_text, found)) != {"none"}

    def repair_index(self, queue: str, members: Sequence[bytes], *, mend: bool) -> list[str]:
        """Checks index entries, and with ``mend`` mends or removes those that are not sound.

        Returns:
            A word for each entry: ``sound``, ``gone`` (it left meanwhile), ``lost`` (it has no message) or ``unnamed``
            (the message cannot be found by its id; in the layout hash, its body has another entry, which gets the due
            time if it has none).
        """
        return self._client.run(repair_index(keys=self._client.stored(queue), mend=mend, members=members))

    def repair_bodies(self, queue: str, bodies: Sequence[tuple[bytes, float | None]], *, mend: bool) -> list[str]:
        """Checks bodies of the default layout, and with ``mend`` adds their missing index entries and names.

        Args:
            queue: Its name.
            bodies: Id of each body, and the due time, ms since the epoch, that it gets if it has no index entry; with
                None it gets no entry.
            mend: Whether to change anything.

        Returns:
            The worst word for each body: ``gone`` (it left meanwhile), ``unindexed`` (it would never be delivered),
            ``unnamed`` (it shares its id with another and cannot be found by it) or ``sound``.
        """
        rows = [(identity, "" if due_ms is None else repr(due_ms)) for identity, due_ms in bodies]
        return self._client.run(repair_bodies(into=self._client.into(queue, "hash"), mend=mend, rows=rows))

    def repair_list(self, queue: str, skip: int, *, mend: bool, count: int = FIRST_ENTRIES) -> ListPage:
        """Looks in the list of Redisson's layout for messages that would never be delivered.

        With ``mend``, these messages get their former due times again.

        Args:
            queue: Its name.
            skip: How many entries at the end of the list to leave out.
            mend: Whether to change anything.
            count: How many of the entries before those to look at.
        """
        keys, wake = self._client.stored(queue, "redisson"), self._client.wake(queue, "redisson")
        call = repair_list(keys=keys, wake=wake, mend=mend, skip=skip, count=count)
        found, size, *marks = self._client.run(call)
        return ListPage(int(found), int(size), list(map(as_bytes, marks)))

    def index_pages(self, queue: str) -> Iterator[list[bytes]]:
        """Yields the members of a queue's index in parts, in any order; some members come twice."""
        cursor = -1
        while cursor:
            cursor, found = self._client.redis.zscan(
                as_bytes(self._client.due(queue)), max(cursor, 0), count=SCAN_INDEX
            )
            members = [as_bytes(member) for member, _ in cast(Any, found)]
            yield from pages(members, inf, ENTRIES_BYTES, len)  # entries of Redisson's layout are as long as messages

    def body_pages(self, queue: str) -> Iterator[dict[bytes, bytes]]:
        """Yields the stored values of a queue in the default layout, by id, in parts and in any order."""
        cursor = -1
        while cursor:
            cursor, found = self._client.redis.hscan(
                as_bytes(self._keys.bodies(queue)), max(cursor, 0), count=SCAN_BODIES
            )
            yield {as_bytes(identity): as_bytes(value) for identity, value in cast(Any, found).items()}

    def list_pages(self, queue: str, *, mend: bool) -> Iterator[ListPage]:
        """Yields the pages of ``repair_list``, from the end of a queue's list on; each entry found comes once."""
        skip, count, before = 0, FIRST_ENTRIES, set[bytes]()
        while True:
            page = self.repair_list(queue, skip, mend=mend, count=count)
            yield page._replace(unindexed=[mark for mark in page.unindexed if mark not in before])
            if page.entries < count:
                return
            before = set(page.unindexed)
            skip += count - count // OVERLAP
            count = max(min(MAX_ENTRIES, ENTRIES_BYTES * count // max(page.size, 1)), 1)

    def queue_pages(self) -> Iterator[set[str]]:
        """Yields the names of all queues of the database that have keys of ours, in parts; some come twice."""
        for found in self._client.scan_pages(self._keys.of_any_queue, SCAN_KEYS):
            names = (self._keys.queue_of(as_text(key)) for key in found)
            yield {name for name in names if name is not None}

    def in_flight_pages(self) -> Iterator[list[tuple[InFlight, int]]]:
        """Yields all in-flight lists of the database, with the number of their messages, in parts; some come twice."""
        for found in self._client.scan_pages(self._keys.of_any_in_flight, SCAN_KEYS):
            in_flight = [InFlight(*of_key) for key in found if (of_key := self._keys.in_flight_of(as_text(key)))]
            counts = self._client.replies([("LLEN", self._keys.in_flight(*at)) for at in in_flight])
            yield [each for each in zip(in_flight, counts, strict=True) if isinstance(each[1], int)]

    def idle_pages(self, idle_s: float) -> Iterator[list[Idle]]:
        """Yields the keys of single processes that nobody has used for so many s, in parts; some come twice.

        A key that expires by itself is left out. To look at a key here is no use of it.

        Raises:
            redis.exceptions.NoPermissionError: The user may not ask since when a key is idle.
        """
        names = ControlKeys(self._keys)
        events: list[bytes | str] = [names.events]
        for keys in chain([events], self._client.scan_pages(names.of_any_mailbox, SCAN_KEYS)):
            kinds = {key: kind for key in map(as_text, keys) if (kind := names.kind_of(key))}
            for page in pages(kinds, PAGE):
                yield [idle for idle in self._looked_at(page, idle_s) if idle.kind == kinds[idle.key]]
            if not kinds:
                yield []  # a call of SCAN that has found none

    def _looked_at(self, keys: Sequence[str], idle_s: float) -> Iterator[Idle]:
        looks = [("TYPE",), ("PTTL",), ("OBJECT IDLETIME",), ("MEMORY USAGE",)]
        replies = self._client.replies([(*look, key) for key in keys for look in looks])
        for key, *answers in zip(keys, *[iter(replies)] * len(looks), strict=True):
            kind, left_ms, idle, size = answers
            if isinstance(idle, NoPermissionError):
                raise idle
            # Where keys are evicted by how often they are used, Redis does not know since when one is idle.
            if left_ms == -1 and isinstance(idle, int) and idle >= idle_s:
                yield Idle(key, as_text(kind), size if isinstance(size, int) else 0)

    def forget_idle(self, page: Sequence[Idle], idle_s: float) -> list[Idle]:
        """Removes those of a page that still nobody has used, and names of removed queues; two round trips.

        Returns:
            What was removed.
        """
        calls = [forget_idle(unused=idle.key, idle_s=idle_s) for idle in page]
        words = self._client.run_each(calls)[0]
        gone = [idle for idle, word in zip(page, words, strict=True) if word == "forgotten"]
        names = ControlKeys(self._keys)
        members = [names.binding_of(idle.key) for idle in gone if idle.kind == "list"]
        self._client.send([("SREM", key, member) for key, member in members])
        checked(words)
        return gone
