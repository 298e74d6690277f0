"""The part of a store for limits by key: what the limits are, which keys a queue has, and what waits in them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, cast

from celery_ext.limits.keys import LimitKeys
from celery_ext.limits.limit import Limit
from kombu_delayq.message import pages
from kombu_delayq.redis import Args, Command, HashKey, ListKey, ListKeys, checked, operation, time_ms
from kombu_delayq.store import (
    PAGE,
    PARKED,
    HeldKeys,
    QueueRegistry,
    StoreClient,
    StorePart,
    consumer_of,
    glob_escaped,
    without_bodies,
)
from kombu_delayq.text import as_bytes, as_text

#: How many keys one call looks at.
KEYS_PAGE = 100
#: How many keys one call of ``refresh_keys`` corrects, so that Redis stays responsive.
REFRESHED = 50
#: How many messages of a key one call of ``unpark`` puts back.
UNPARKED = 10
#: Through how many messages of a queue one call looks for a text.
SEARCHED = 100
#: What stands before a limit, or a key, that people have set; and before the name of a queue that has limits.
SET, QUEUE = "=", "@"


class KeyState(NamedTuple):
    """A key of a queue.

    Attributes:
        key: Such as ``account:7``; empty for the messages without a key.
        waiting: Number of its messages that wait in its sub-queue.
        running: Number of its messages in hand, of tasks that run or are about to.
        rests_s: For how long it rests, in s; 0 if it does not.
    """

    key: str
    waiting: int
    running: int
    rests_s: float = 0.0


class ParkedMessage(NamedTuple):
    """A message in a sub-queue.

    Attributes:
        key: Its key.
        step: Number of the list of the queue from which it came.
        member: What stands for it in ``Keys.parked``.
        message: The message.
    """

    key: str
    step: int
    member: bytes
    message: bytes

    @property
    def place(self) -> bytes:
        """Its place among the others: what ``member`` begins with, before the message."""
        return self.member[: len(self.member) - len(self.message)]

    @property
    def since_ms(self) -> float:
        """About since when it waits here, ms since the epoch."""
        return int(self.place[-16:]) / 1000

    def __repr__(self) -> str:
        return without_bodies(self._replace(member=b""))


class Limits(NamedTuple):
    """The limits of a queue.

    Attributes:
        declared: By name, as the worker that started last has declared them.
        set: By name or key, what people have set.
    """

    declared: Mapping[str, Limit]
    set: Mapping[str, Limit]

    def of(self, key: str) -> Limit | None:
        """Returns the limit of a key; None for a key whose limit nobody has declared."""
        name = key.partition(":")[0]
        found = self.declared.get(name)
        for given in (self.set.get(name), self.set.get(key)):
            found = found if given is None else given.over(found)
        return found


class LimitUse(NamedTuple):
    """How much of its limits a queue uses.

    Attributes:
        waiting: By the name of a limit, how many messages of it wait in sub-queues.
        running: By the name of a limit, how many places of it are taken.
        free: Of how many keys a message may go now.
        resting: How many keys rest.
    """

    waiting: Mapping[str, int]
    running: Mapping[str, int]
    free: int
    resting: int


@operation()
def refresh_keys(*, places: HashKey, base: str, cursor: str, count: int, names: Args[str]) -> tuple[str, int]: ...
@operation(once=True)
def back_off(
    *, held: HeldKeys, ready: ListKey, tag: str, is_early: bool, rest: int, base: str, name: str, message: str
) -> str: ...
@operation(once=True)
def take_parked(*, places: HashKey, base: str, members: Args[bytes]) -> list[int]: ...
@operation(once=True)
def unpark(*, places: HashKey, ready: ListKeys, base: str, cursor: str, most: int) -> tuple[str, int]: ...
@operation()
def drop_parked(*, places: HashKey, base: str) -> int: ...


class LimitStore(StorePart):
    """Limits by key. All calls are short, however many keys and messages there are."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = LimitKeys(client.keys)
        self._cursors: dict[str, str] = {}  # by queue, which keys `nudge` refreshes next

    def declare(self, limits: Mapping[str, Limit], queues: Iterable[str]) -> list[str]:
        """Writes the limits that a worker declares, in place of those before; a round trip or two for each group.

        Args:
            limits: By name.
            queues: Names of the queues that it consumes. One without them gets what people have set for all, too.

        Returns:
            The queues for which something has changed.
        """
        queues = list(queues)
        wanted = {"": "1", **{name: limit.written() for name, limit in limits.items()}}
        of_all = self._found("")
        changed = []
        for group, of_group in self._by_group([*queues, ""]).items():
            known = self._found(group)
            wanted_here = wanted | {name: text for name, text in of_all.items() if name.startswith(SET)}
            if not group:
                wanted_here |= {QUEUE + queue: "1" for queue in queues}
            gone = [name for name in known if name not in wanted_here and not name.startswith((SET, QUEUE))]
            is_new = known | wanted_here != known
            if is_new:
                self._client.ask("HSET", self._own.limits(group), *_flat(wanted_here))
            if gone:
                self._client.ask("HDEL", self._own.limits(group), *gone)
            if gone or is_new:
                changed += [queue for queue in of_group if queue]
        return changed

    def override(self, name: str, limit: Limit | None, queues: Iterable[str]) -> None:
        """Sets a limit, or that of one key, in place of what workers declare; until it is None.

        Args:
            name: A limit, or a key.
            limit: What holds instead. A field that is None stays as it is declared.
            queues: Names of the queues that have or may have messages of it. They give it its turns at once.
        """
        queues = list(queues)
        for group in self._by_group([*queues, ""]):
            if limit is None:
                self._client.ask("HDEL", self._own.limits(group), SET + name)
            else:
                self._client.ask("HSET", self._own.limits(group), "", "1", SET + name, limit.written())
        for queue in queues:
            self.refresh(queue, [name] if ":" in name else ())

    def limits(self, queue: str = "") -> Limits:
        """Returns the limits of a queue, by default those that are known for all; one round trip."""
        declared, given = dict[str, Limit](), dict[str, Limit]()
        for name, text in self._found(queue).items():
            limit = Limit.read(text) if name and not name.startswith(QUEUE) else None
            if limit is not None:
                (given if name.startswith(SET) else declared)[name.removeprefix(SET)] = limit
        return Limits(declared, given)

    def queues(self) -> set[str]:
        """Returns the names of the queues in which workers have declared limits; one round trip."""
        return {name.removeprefix(QUEUE) for name in self._found("") if name.startswith(QUEUE)}

    def has_parked(self, queue: str) -> bool:
        """Whether a message waits in a sub-queue of a queue."""
        return bool(self._client.ask("EXISTS", self._keys.parked(queue)))

    def keys(self, queue: str) -> Iterator[KeyState]:
        """Yields the keys of a queue that have messages, or whose tasks run, as ``keys_page``."""
        cursor: int | None = 0
        while cursor is not None:
            found, cursor = self.keys_page(queue, cursor)
            yield from found

    def keys_page(self, queue: str, cursor: int = 0) -> tuple[list[KeyState], int | None]:
        """Returns some hundred keys of a queue, and where the next ones begin, None at the end; three round trips.

        A key that is there all the time is on a page at least once.

        Args:
            queue: Name of the queue.
            cursor: Of the page before.
        """
        now_ms = self._now_ms()
        key = as_bytes(self._keys.parked_keys(queue))
        cursor, found = self._client.redis.hscan(key, cursor, count=KEYS_PAGE)
        rows: dict[Any, Any] = {name: noted for name, noted in cast(Any, found).items() if name != PARKED}
        return list(self._states(queue, rows, now_ms)), cursor or None

    def states(self, queue: str, names: Sequence[str]) -> list[KeyState]:
        """Returns some keys of a queue; two round trips."""
        found = self._client.ask("HMGET", self._keys.parked_keys(queue), *names) if names else []
        rows = {as_bytes(name): noted or b"0 0 inf 0 0" for name, noted in zip(names, found, strict=True)}
        return list(self._states(queue, rows, self._now_ms()))

    def use(self, queues: Sequence[str]) -> dict[str, LimitUse]:
        """Counts by limit what waits and runs in queues; two round trips for each slot group, however many keys.

        Only limits that workers have declared count, since anybody may publish messages with the name of another one.

        Args:
            queues: Their names.
        """
        groups = self._by_group(queues)
        commands = [("HGETALL", key) for group in groups for key in (self._own.limits(group), self._keys.places(group))]
        replies = iter(checked(self._client.replies(commands)))
        found: dict[str, LimitUse] = {}
        for of_group, limits, places in zip(groups.values(), replies, replies, strict=True):
            names = sorted(name for name in map(as_text, limits) if name and not name.startswith((SET, QUEUE)))
            taken = Counter(map(_limit_of_place, places.values()))
            counts = iter(self._client.send([command for queue in of_group for command in self._counted(queue, names)]))
            for queue in of_group:
                waiting = {name: next(counts) + next(counts) for name in names}
                running = {name: taken[self._keys.base(queue), name] for name in names}
                found[queue] = LimitUse(waiting, running, next(counts), next(counts))
        return found

    def refresh(self, queue: str, names: Collection[str] = ()) -> int:
        """Gives keys their turns by the limits that hold now, by default all keys of a queue.

        Returns:
            Of how many keys the number of waiting or running tasks was noted wrongly, and is right now.
        """
        cursor, corrected = "0", 0
        while True:
            cursor, number = self.refresh_keys(queue, cursor, names)
            corrected += number
            if cursor == "0":
                return corrected

    def nudge(self, queues: Sequence[str]) -> None:
        """Ends the rests of keys that are over, and wakes a consumer where a message may go; one round trip.

        Each call also refreshes the next ``REFRESHED`` keys of each queue, so that those with a rate do not stay.
        """
        calls = [self._refresh(queue, self._cursors.get(queue, "0"), ()) for queue in queues]
        for queue, reply in zip(queues, self._client.run_each(calls)[0], strict=True):
            if isinstance(reply, Exception):
                raise reply
            self._cursors[queue], _ = refresh_keys.read(reply)

    def refresh_keys(self, queue: str, cursor: str = "0", names: Collection[str] = ()) -> tuple[str, int]:
        """Does a page of ``refresh``. Returns the next cursor, ``0`` at the end, and how many keys were corrected."""
        found: tuple[str, int] = self._client.run(self._refresh(queue, cursor, names))
        return found

    def back_off(
        self, queue: str, key: str, rest_s: float, tag: str, message: str, step: int, *, is_early: bool
    ) -> bool:
        """Lets a key rest, and gives the message of a task back as the next one of the key; one round trip.

        Args:
            queue: Name of the queue.
            key: The key.
            rest_s: How long it rests, in s.
            tag: Delivery tag of the message.
            message: The message.
            step: Number of the list of the queue to which its priority belongs.
            is_early: Whether the consumer has acknowledged it already.

        Returns:
            Whether the consumer still held it.
        """
        call = back_off(
            held=self._client.held(queue),
            ready=self._client.ready(queue)[step],
            tag=tag,
            is_early=is_early,
            rest=round(rest_s * 1000),
            base=self._keys.base(queue),
            name=key,
            message=message,
        )
        return self._client.run(call) == "rests"

    def parked(self, queue: str) -> Iterator[ParkedMessage]:
        """Yields what waits in the sub-queues of a queue, key by key; a round trip for some hundred messages."""
        return self._parked_between(queue, b"-", b"+")

    def parked_at(self, queue: str, place: bytes) -> Iterator[ParkedMessage]:
        """Yields what waits at a place in the sub-queues of a queue: a message, or none any more."""
        return self._parked_between(queue, b"[" + place, b"[" + place + b"\xff")

    def search(self, queue: str, texts: Iterable[bytes]) -> Iterator[ParkedMessage]:
        """Yields what waits in the sub-queues of a queue and contains one of some texts, some of it twice.

        Redis looks for them, through ``SEARCHED`` messages in a call.
        """
        key = self._keys.parked(queue)
        for text in texts:
            pattern, cursor = b"*" + as_bytes(glob_escaped(as_text(text))) + b"*", 0
            while True:
                cursor, found = self._client.redis.zscan(as_bytes(key), cursor, match=pattern, count=SEARCHED)
                yield from (_parked(member) for member, _ in cast(Any, found))
                if not cursor:
                    break

    def holders(self, group: str) -> Counter[str]:
        """Counts the places of a slot group by the names of the consumers that have them; no snapshot."""
        return Counter(consumer_of(tag) for tag in self._places(group))

    def places_by_key(self, queue: str) -> Counter[str]:
        """Counts the places of a queue by key; no snapshot."""
        base = as_bytes(self._keys.base(queue))
        places = (place.partition(b"\0") for place in self._places(queue).values())
        return Counter(as_text(rest[1:]) for of, _, rest in places if of == base)

    def _places(self, queue: str) -> dict[str, bytes]:
        """Returns the places of the slot group of a queue, by delivery tag; a round trip for some hundred."""
        found, cursor, key = dict[str, bytes](), 0, as_bytes(self._keys.places(queue))
        while True:
            cursor, page = self._client.redis.hscan(key, cursor, count=KEYS_PAGE)
            found |= {as_text(tag): as_bytes(place) for tag, place in cast(Any, page).items()}
            if not cursor:
                return found

    def take_parked(self, queue: str, members: Sequence[bytes]) -> list[bool]:
        """Takes messages out of sub-queues. Returns for each whether it was there."""
        calls = [
            take_parked(places=self._keys.places(queue), base=self._keys.base(queue), members=page)
            for page in pages(members, PAGE)
        ]
        return [bool(was_there) for call in calls for was_there in self._client.run(call)]

    def unpark(self, queue: str, most: int | float = inf) -> int:
        """Puts messages of sub-queues back into the lists of their queue, for consumers that know no limits.

        Args:
            queue: Name of the queue.
            most: About how many to put back at most.

        Returns:
            How many were put back. Keys that are paused keep theirs.
        """
        done, in_round, cursor = 0, 0, "0"
        while done < most:
            call = unpark(
                places=self._keys.places(queue),
                ready=self._client.ready(queue),
                base=self._keys.base(queue),
                cursor=cursor,
                most=UNPARKED,
            )
            cursor, number = self._client.run(call)
            done, in_round = done + number, in_round + number
            if cursor == "0":
                if not in_round:
                    break
                in_round = 0
        return done

    def drop_parked(self, queue: str) -> int:
        """Removes what waits in the sub-queues of a queue. Returns how many messages that were."""
        return self._client.run(drop_parked(places=self._keys.places(queue), base=self._keys.base(queue)))

    def _counted(self, queue: str, names: Sequence[str]) -> Iterator[Command]:
        """Yields what counts the messages of limits, those without and with values in their keys, and then keys."""
        parked = self._keys.parked(queue)
        for name in names:
            yield "ZLEXCOUNT", parked, f"[{name}\0", f"({name}\1"
            yield "ZLEXCOUNT", parked, f"[{name}:", f"({name};"
        yield "ZCARD", self._own.turns(queue)
        yield "ZCARD", self._own.rests(queue)

    def _parked_between(self, queue: str, first: bytes, last: bytes) -> Iterator[ParkedMessage]:
        while True:
            found = self._client.ask("ZRANGEBYLEX", self._keys.parked(queue), first, last, "LIMIT", 0, PAGE)
            yield from map(_parked, found)
            if len(found) < PAGE:
                return
            first = b"(" + as_bytes(found[-1])

    def _refresh(self, queue: str, cursor: str, names: Collection[str]) -> Any:
        return refresh_keys(
            places=self._keys.places(queue), base=self._keys.base(queue), cursor=cursor, count=REFRESHED, names=names
        )

    def _states(self, queue: str, rows: Mapping[Any, Any], now_ms: float) -> Iterator[KeyState]:
        names = list(rows)
        rests = self._client.ask("ZMSCORE", self._own.rests(queue), *names) if names else []
        for name, until_ms in zip(names, rests, strict=True):
            waiting, running, *_ = as_text(rows[name]).split()
            rests_s = max(float(until_ms) - now_ms, 0.0) / 1000 if until_ms is not None else 0.0
            yield KeyState(as_text(name), int(float(waiting)), int(float(running)), rests_s)

    def _found(self, queue: str) -> dict[str, str]:
        found = self._client.ask("HGETALL", self._own.limits(queue))
        return {as_text(name): as_text(text) for name, text in found.items()}

    def _by_group(self, queues: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for queue in queues:
            found.setdefault(self._keys.slot_group(queue), []).append(queue)
        return found

    def _now_ms(self) -> float:
        return time_ms(self._client.redis.time())


def note_purge(client: StoreClient, registry: QueueRegistry, queue: str, with_ready: bool) -> int:
    """Is the hook ``purged``: what waits in sub-queues goes with the lists of the queue."""
    return LimitStore(client, registry).drop_parked(queue) if with_ready else 0


def _limit_of_place(place: bytes | str) -> tuple[str, str]:
    """Returns the base of the keys of the queue of a place, and the name of its limit."""
    base, _, rest = as_text(place).partition("\0")
    return base, rest[1:].partition(":")[0]


def _parked(member: Any) -> ParkedMessage:
    name, _, rest = as_bytes(member).partition(b"\0")
    return ParkedMessage(as_text(name), int(rest[:1]), as_bytes(member), rest[17:])


def _flat(mapping: Mapping[str, str]) -> list[str]:
    return [part for pair in mapping.items() for part in pair]
