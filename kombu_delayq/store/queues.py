"""The store's operations on whole queues: lists, counts, empties, forgets and converts them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import inf
from threading import Lock
from time import monotonic
from typing import NamedTuple

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from kombu_delayq import hooks
from kombu_delayq.message import to_json
from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis import (
    Call,
    HashKey,
    Key,
    ListKeys,
    Stored,
    StringKey,
    ZSetKey,
    check_reached,
    checked,
    operation,
    time_ms,
    wrong_type,
)
from kombu_delayq.store.client import Into, StoreClient
from kombu_delayq.store.counts import QueueStats
from kombu_delayq.store.figures import stats
from kombu_delayq.store.keys import MINUTES_KEPT_H, KeyNames, glob_escaped
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.text import as_bytes, as_text

logger = get_logger(__name__)

#: Largest number of messages, and about the largest number of bytes, that one call converts.
CONVERT_COUNT, CONVERT_BYTES = 60, 300_000
#: Limits of a search for other key prefixes, or for a bound queue: calls of SCAN, keys that a call looks at, prefixes,
#: queues of a prefix.
PREFIX_SCANS, SCAN_KEYS, PREFIXES, PREFIX_QUEUES = 10, 1000, 20, 1000

#: For how long one call looks for names, in s, and the share of the time that it takes to look again and again.
LOOK_S, LOOK_SHARE = 0.05, 0.02


class Names:
    """Names that only a look at all keys finds: by pages, from call to call.

    Args:
        pages: Begins to look. It yields the names of each page.
        is_partial: Whether an error is that of one node of several. Then what was found before stays known.
    """

    def __init__(self, pages: Callable[[], Iterator[list[str]]], is_partial: Callable[[Exception], bool]) -> None:
        self._pages, self._is_partial = pages, is_partial
        self._lock = Lock()
        self._begun: Iterator[list[str]] | None = None
        self._known, self._found = set[str](), set[str]()
        self._took_s, self._again_at = 0.0, -inf

    def look(self, look_s: float) -> set[str]:
        """Looks on for about so many s. Returns the names of the last whole look, and of what came since."""
        with self._lock:
            began = monotonic()
            if began >= self._again_at:
                try:
                    while self._page() and monotonic() - began < look_s:
                        pass
                except (RedisError, OSError) as error:
                    if not self._is_partial(error):
                        raise
                self._took_s += monotonic() - began
                if self._begun is None:
                    self._again_at, self._took_s = monotonic() + self._took_s / LOOK_SHARE, 0.0
            return self._known | self._found

    def _page(self) -> bool:
        """Reads a page. Returns False at the end."""
        pages, self._begun = self._begun or self._pages(), None  # after an error, the next call begins anew
        found = next(pages, None)
        if found is None:
            self._known, self._found = self._found, set()
            return False
        self._found.update(found)
        self._begun = pages
        return True


class Converted(NamedTuple):
    """The result of one call that moves messages from one layout to the other.

    Attributes:
        moved: Number of messages moved.
        lost: Number of index entries without a body; they are gone from the index.
        left: Number of messages that are still in the other layout.
        stranded: Number of bodies in the other layout that belong to no message, once no message is left there;
            ``delayq repair`` mends that.
    """

    moved: int
    lost: int
    left: int
    stranded: int


@operation(layout="hash")
def forget_empty(
    *, timeout: ZSetKey, due: ZSetKey, bodies: HashKey, notes: StringKey, ids: ZSetKey, ready: ListKeys, counts: Key
) -> str: ...
@operation()
def keep_alive(*, keys: Stored, expire: int, counts: Key) -> str: ...
@operation()
def purge(*, keys: Stored, ready: ListKeys, counts: Key) -> int: ...
@operation()
def convert(*, into: Into, others: Stored, count: int, max_bytes: int) -> tuple[int, int, int, int, str]: ...


class Queues(StorePart):
    """Lists, counts, empties and forgets queues. All calls are short, however much a queue holds.

    Args:
        client: The connection.
        registry: The queues that transfer workers know.
        note_purge: Told of each queue that was purged.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._bound = Names(self._bindings, client.pool.is_partial)

    def names(self) -> list[str]:
        """Returns the names of the queues that had delayed messages and have, or had lately, messages or consumers."""
        return self.registered()

    def registered(self) -> list[str]:
        """Returns the names of the queues that transfer workers look at: those that Redis knows."""
        return sorted(filter(self._keys.is_usable, map(as_text, self._client.redis.smembers(self._keys.queues))))

    def exists(self, queue: str) -> bool:
        """Whether anybody has published to a queue or consumes it, as far as Redis can say.

        Redis has no list of an empty queue, but kombu's bindings stay. One round trip, and for a queue that is bound to
        exchanges of other names only, a look at a few thousand keys.
        """
        if not self._keys.is_usable(queue):
            return False
        looks = [("EXISTS", key) for key in (self._keys.bindings(queue), *self._ready_in(queue))]
        consumed, *found = self._client.replies(
            [("HVALS", self._keys.consumed(queue)), ("SISMEMBER", self._keys.queues, queue), *looks]
        )
        check_reached((consumed, *found))
        name = to_json(queue).encode()
        is_consumed = isinstance(consumed, list) and any(name in as_bytes(names) for names in consumed)
        return is_consumed or 1 in found or any(queue in names for names in self._bindings(PREFIX_SCANS))

    def wrong_keys(
        self, queues: Iterable[str] = (), exchanges: Iterable[str] = (), features: Iterable[type[KeyNames]] = ()
    ) -> list[str]:
        """Finds keys of another type in the place of those that queues share; a round trip, in a cluster two.

        Args:
            queues: Names of queues, whose lists are looked at, too.
            exchanges: Names of exchanges, whose bindings are looked at, too.
            features: Keys of features that are looked at, too.

        Returns:
            An error of each such key, as scripts have it. Keys whose type Redis does not tell are left out, as are
            those of a node of a cluster that is away.
        """
        groups: list[str] = []
        with suppress(*self._client.pool.partial_errors):  # in a cluster, their names are in such a key, too
            groups = self._client.slot_groups()
        kept = self._keys.shared(groups, exchanges)
        for names in features:
            kept |= names(self._keys).shared()
        kept |= {key: "list" for queue in queues for key in self._client.ready(queue)}
        kinds = self._client.replies([("TYPE", key) for key in kept])
        found = {key: as_text(kind) for key, kind in zip(kept, kinds, strict=True) if not isinstance(kind, Exception)}
        return [wrong_type(key, kind, kept[key]) for key, kind in found.items() if kind not in ("none", kept[key])]

    def know(self, queue: str) -> bool:
        """Makes a queue known to the transfer workers. Returns False if a full Redis has no room for the name yet."""
        return self._registry.add(queue)

    def forget_empty(self, queues: Sequence[str]) -> list[str]:
        """Makes queues without messages, delayed or ready, unknown; at most four round trips.

        Exporters list the known ones, so a queue of which nobody consumes the messages stays. The name leaves first and
        comes back if a message has come meanwhile, see ``QueueRegistry``. The counters of the queue are kept for
        ``COUNTS_KEPT_MS``.

        Args:
            queues: Names of some hundred queues.

        Returns:
            The names of the queues that are unknown now.
        """
        try:
            return self._forget_empty(queues, LAYOUTS)
        except NoPermissionError:  # Redis need not give rights for the layout that is not the store's own
            return self._forget_empty(queues, [self._client.layout])

    def _forget_empty(self, queues: Sequence[str], layouts: Sequence[str]) -> list[str]:
        looks = [("EXISTS", *self._held_in(queue, layouts), *self._ready_in(queue)) for queue in queues]
        empty = [queue for queue, is_used in zip(queues, self._client.send(looks), strict=True) if not is_used]
        if not empty:
            return []
        self._client.ask("SREM", self._keys.queues, *empty)
        words = self._client.run_each([self._forget_call(queue, layouts) for queue in empty])[0]
        gone = [queue for queue, word in zip(empty, words, strict=True) if word == "empty"]
        for queue in empty:
            if queue not in gone:
                self._registry.add(queue)
        checked(words)
        return gone

    def _forget_call(self, queue: str, layouts: Sequence[str]) -> Call[str]:
        timeout, due, bodies = self._held_in(queue, layouts)
        *_, notes, ids = self._client.stored(queue, "hash")
        ready, counts = self._ready_in(queue), self._keys.counts(queue)
        return forget_empty(timeout=timeout, due=due, bodies=bodies, notes=notes, ids=ids, ready=ready, counts=counts)

    def _ready_in(self, queue: str) -> list[str]:
        """Returns the keys of which one is there if the queue has a message that waits for a consumer."""
        return [*self._client.ready(queue), self._keys.parked(queue)]

    def _held_in(self, queue: str, layouts: Sequence[str]) -> list[str]:
        """Returns the keys of which one is there if the queue has a delayed message."""
        return [self._client.due(queue, layouts[-1]), self._keys.due(queue), self._keys.bodies(queue)]

    def keep_alive(self, queue: str, expire_ms: int = 0) -> None:
        """Notes that a queue is consumed, so that it expires later; one round trip.

        In Redisson's layout it also registers the queue: the first message may come from a JVM service, which registers
        nothing.

        Args:
            queue: Its name.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """
        counts, keys_of = self._keys.counts(queue), {layout: self._client.stored(queue, layout) for layout in LAYOUTS}
        calls = [keep_alive(keys=keys, expire=expire_ms, counts=counts).on(one) for one, keys in keys_of.items()]
        replies = dict(zip(LAYOUTS, self._client.run_each(calls)[0], strict=True))
        own = replies.pop(self._client.layout)
        # Redis need not give rights for the other layout, whose messages are drained.
        checked([own, *(reply for reply in replies.values() if not isinstance(reply, NoPermissionError))])
        if LAYOUT_OF[self._client.layout].is_shared:
            self._registry.add(queue)

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue."""
        return int(self._client.ask("ZCARD", self._client.due(queue)))

    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages."""
        call = stats(due=self._client.due(queue), ready=self._client.ready(queue), base=self._keys.base(queue))
        return QueueStats.of(queue, self._client.run(call))

    def purge(self, queue: str, *, with_ready: bool = False) -> int:
        """Removes all delayed messages of a queue; its counters stay for a while. Returns how many.

        Periodic entries go on: who arms them does so anew.

        Args:
            queue: Its name.
            with_ready: Whether those go, too, that wait for a consumer.
        """
        lists = self._client.ready(queue) if with_ready else ()
        count = self._client.run(purge(keys=self._client.stored(queue), ready=lists, counts=self._keys.counts(queue)))
        with suppress(NoPermissionError):
            count += sum(hooks.made("purged", self._client, self._registry, queue, with_ready))
        with suppress(NoPermissionError):  # then the name stays until the leading transfer worker drops it
            self.forget_empty([queue])
        return count

    def delete(self, queue: str) -> int:
        """Removes a queue's messages and all that is known about it. Returns how many messages."""
        count = self.purge(queue, with_ready=True)
        with suppress(NoPermissionError):
            last = int(time_ms(self._client.redis.time()) // 3_600_000)
            minutes = [self._keys.minutes(queue, last - ago) for ago in range(MINUTES_KEPT_H + 1)]
            self._client.ask("UNLINK", self._keys.counts(queue), *minutes)
            self._client.ask("SREM", self._keys.dead_letters, queue)
        return count

    def of_letters(self) -> list[str]:
        """Returns the names of the queues into which dead letters were put."""
        return sorted(map(as_text, self._client.redis.smembers(self._keys.dead_letters)))

    def note_dead_letters(self, queue: str, count: int = 1) -> None:
        """Notes that a queue gets dead letters, so that they are shown, and how many; one round trip.

        A Redis that refuses the note is no error.
        """
        with suppress(ResponseError):
            self._client.send([("SADD", self._keys.dead_letters, queue), self._client.count_dead(queue, count)])

    def convert(self, queue: str, layout: str | None = None) -> Converted:
        """Moves some messages of a queue to a layout, the next due first; one round trip.

        At any moment each message is in one of the two layouts. It keeps its id, its priority and its place among the
        messages of its due time, which ``list`` rounds up to whole ms. The queue's keys expire no sooner than they
        would have in either layout.

        Args:
            queue: Its name.
            layout: The layout to which the messages go, by default the store's own.
        """
        client, to = self._client, layout or self._client.layout
        [other] = {*LAYOUTS} - {to}
        into, others = client.into(queue, to), client.stored(queue, other)
        call = convert(into=into, others=others, count=CONVERT_COUNT, max_bytes=CONVERT_BYTES)
        *numbers, place = client.run(call.on(to))
        done = Converted(*map(int, numbers))
        if done.moved and place == "first":
            self._registry.add(queue)  # the messages may come from another client, which registers nothing
        return done

    def convertible(self, queue: str, layout: str | None = None) -> int:
        """Counts the messages that ``convert`` has to move."""
        [count] = checked(self.convertible_each([queue], layout))
        return int(count)

    def convertible_each(self, queues: Sequence[str], layout: str | None = None) -> list[int | Exception]:
        """Counts what ``convertible`` does for each of several queues, or returns an error for it; one round trip."""
        [other] = {*LAYOUTS} - {layout or self._client.layout}
        return self._client.replies([("ZCARD", self._client.due(queue, other)) for queue in queues])

    def other_prefixes(self) -> dict[str, int]:
        """Counts the delayed messages under other key prefixes of this database, which this store does not see.

        It looks at a few thousand keys and queues at most, so it may miss some in a large database. It leaves out what
        the ACL forbids, and everything if Redis or one of its nodes is away.

        Returns:
            Number of messages by prefix, the largest first; prefixes without messages are left out.
        """
        with suppress(RedisError, OSError):
            pages = self._client.scan_pages("*{delayq}:queues", SCAN_KEYS, PREFIX_SCANS)
            found = {key for page in pages for key in map(as_text, page) if self._keys.prefix_of(key) is not None}
            sizes = Counter[str]()
            for registry in sorted(found)[:PREFIXES]:
                prefix = str(self._keys.prefix_of(registry))
                if prefix != self._keys.prefix:
                    sizes[prefix] += self._size_under(prefix)
            return {prefix: size for prefix, size in sizes.most_common() if size}
        return {}

    def bound(self, look_s: float = LOOK_S) -> set[str]:
        """Returns the names of the queues that kombu has bound to exchanges, of every kind.

        Only a look at all keys finds them. A call looks for at most so many s, and the next one goes on from there, so
        in a large database the first calls may miss some.
        """
        return self._bound.look(look_s)

    def _bindings(self, most: int | None = None) -> Iterator[list[str]]:
        pattern = glob_escaped(self._keys.bindings("")) + "*"
        for keys in self._client.scan_pages(pattern, SCAN_KEYS, most):
            # Queues of processes are left out. Nobody else reads some of these bindings, so ``repair`` sees their age.
            shared = [key for key in keys if not as_text(key).endswith((".pidbox", ".celeryev"))]
            replies = self._client.replies([("SMEMBERS", key) for key in shared])
            found = [bound for reply in replies if not isinstance(reply, Exception) for bound in reply]
            yield [as_text(bound).rpartition(self._keys.separator)[2] for bound in found]

    def _size_under(self, prefix: str) -> int:
        keys = replace(self._keys, prefix=prefix)
        with suppress(ResponseError):
            queues = islice(self._client.redis.smembers(keys.queues), PREFIX_QUEUES)
            with self._client.redis.pipeline(transaction=False) as pipe:
                for queue in map(as_text, queues):
                    for layout in LAYOUTS:
                        pipe.zcard(as_bytes(LAYOUT_OF[layout].due(keys, queue)))
                sizes = pipe.execute(raise_on_error=False)
            return sum(size for size in sizes if isinstance(size, int))
        return 0
