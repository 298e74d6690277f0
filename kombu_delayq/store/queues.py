"""The store's operations on whole queues: lists, counts, empties, forgets and converts them."""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.message.fields import to_json
from kombu_delayq.options import BACKUPS
from kombu_delayq.store.client import QueueRegistry, ScriptCall, StoreClient, StorePart
from kombu_delayq.store.keys import glob_escaped

#: Largest number of messages, and about the largest number of bytes, that one call converts.
CONVERT_COUNT, CONVERT_BYTES = 60, 300_000
#: Consumers note the use of a queue, and the leader looks for unused ones, every 1/24 of ``forget_after``.
FORGET_SHARE = 1 / 24
#: Limits of a search for other key prefixes, or for the bindings of a queue: calls of SCAN, keys that a call looks at,
#: prefixes, queues of a prefix.
PREFIX_SCANS, SCAN_KEYS, PREFIXES, PREFIX_QUEUES = 10, 1000, 20, 1000


class Converted(NamedTuple):
    """The result of one call that moves messages from one form of backup to the other.

    Attributes:
        moved: Number of messages moved.
        lost: Number of index entries without a body; they are gone from the index.
        left: Number of messages that are still in the other form.
        stranded: Number of bodies in the other form that belong to no message, once no message is left there;
            ``delayq repair`` mends that.
    """

    moved: int
    lost: int
    left: int
    stranded: int


@dataclass(frozen=True)
class QueueStats:
    """Numbers of one queue, all of one moment.

    Attributes:
        now_ms: Redis's clock.
        delayed: Number of messages that wait for their due time, overdue ones among them.
        ready: Number of messages that wait for a consumer.
        overdue: Number of delayed messages whose due time is past.
        next_due_ms: When the next delayed message is due, or None.
        error: Why Redis refuses to count the queue, whose numbers are 0 then; else empty.
        in_journal: How many of the delayed messages only a journal has.
    """

    queue: str
    now_ms: float
    delayed: int
    ready: int
    overdue: int
    next_due_ms: float | None
    error: str = ""
    in_journal: int = 0

    @property
    def overdue_ms(self) -> float:
        """How long the oldest overdue message has been due, 0 if none is."""
        return max(self.now_ms - self.next_due_ms, 0.0) if self.next_due_ms is not None else 0.0


class Queues(StorePart):
    """Lists, counts, empties and forgets queues. All calls are short, however much a queue holds."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client)
        self._registry = registry

    def names(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages."""
        return self.registered()

    def registered(self) -> list[str]:
        """Returns the names of the queues that transfer workers look at: those that Redis knows."""
        return sorted(map(as_text, self._client.redis.smembers(self._keys.queues)))

    def exists(self, queue: str) -> bool:
        """Whether anybody has published to a queue or consumes it, as far as Redis can say.

        Redis has no list of an empty queue, but kombu's bindings stay. One round trip, and for a queue that is bound to
        exchanges of other names only, a look at a few thousand keys.
        """
        looks = [("EXISTS", key) for key in (self._keys.bindings(queue), *self._client.ready(queue))]
        consumed, *found = self._client.replies(
            [("HVALS", self._keys.consumed), ("SISMEMBER", self._keys.queues, queue), *looks]
        )
        for reply in (consumed, *found):
            if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
                raise reply
        name = to_json(queue).encode()
        is_consumed = isinstance(consumed, list) and any(name in as_bytes(names) for names in consumed)
        return is_consumed or 1 in found or self._is_bound(queue)

    def know(self, queue: str) -> bool:
        """Makes a queue known to the transfer workers. Returns False if a full Redis has no room for the name."""
        return self._registry.know(queue)

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue, in either form of backup."""

        def look(forms: Sequence[str]) -> int:
            return sum(self._client.send([("ZCARD", self._client.due(queue, form)) for form in forms]))

        return self._client.in_each_form(look)

    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages, in either form of backup."""

        def look(forms: Sequence[str]) -> QueueStats:
            dues = [self._client.due(queue, forms[0]), self._client.due(queue, forms[-1])]
            now, delayed, ready, overdue, head = self._client.run("stats", [*dues, *self._client.ready(queue)], [])
            return QueueStats(queue, float(now), delayed, ready, overdue, float(head) if head else None)

        return self._client.in_each_form(look)

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue; its counters stay for ``forget_after``. Returns how many."""
        # Again at the end, because a conversion may move messages from either form to the other meanwhile.
        count = sum((self._purge_own(queue), self._purge_other(queue), self._purge_own(queue)))
        self._registry.drop(queue)
        with suppress(NoPermissionError):  # then the name stays, as the name of any empty queue does
            self.forget([queue], 0.0)
        return count

    def delete(self, queue: str) -> int:
        """Removes a queue's delayed messages and all that is known about it. Returns how many messages."""
        count = self.purge(queue)
        with suppress(NoPermissionError):
            self._client.ask("UNLINK", self._keys.counts(queue))
            self._client.ask("SREM", self._keys.dead_letters, queue)
        return count

    def note_dead_letters(self, queue: str) -> None:
        """Notes that a queue has dead letters, so that they are shown. A Redis that refuses the note is no error."""
        with suppress(ResponseError):
            self._client.ask("SADD", self._keys.dead_letters, queue)

    def keep_alive(self, queue: str, expire_ms: int = 0) -> None:
        """Notes that a queue is in use, so that it expires later and is not forgotten; one round trip.

        In Redisson's form it also registers the queue: the first message may come from a JVM service, which registers
        nothing.

        Args:
            queue: Its name.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """

        def note(forms: Sequence[str]) -> None:
            args = [expire_ms, queue, int(self._client.backup == "list"), self._keys.counts(queue)]
            shared = [self._keys.queues, self._keys.used]
            calls: list[ScriptCall] = [([*self._client.stored(queue, form), *shared], args, form) for form in forms]
            for reply in self._client.run_each("keep_alive", calls)[0]:
                if isinstance(reply, Exception):
                    raise reply

        self._client.in_each_form(note)

    def forget(self, queues: Sequence[str], after_s: float, heard: Collection[str] = ()) -> list[str]:
        """Forgets queues without messages that have been unused for some time; one round trip.

        A queue is in use if it has a message or a consumer (see ``keep_alive``), or if a JVM service listens to its new
        heads. The first time that a queue is seen, its time begins. Its counters go with it, but for those of a
        queue that is forgotten at once: they are kept for ``forget_after``.

        Args:
            queues: Names, about a hundred.
            after_s: For how long they must have been unused, in s; 0 forgets an empty queue at once.
            heard: Names of the queues in Redisson's form to whose new heads transfer workers listen, the caller among
                them. So JVM services are those listeners that are more than the transfer workers.

        Returns:
            Names of the forgotten queues.
        """

        def act(forms: Sequence[str]) -> list[str]:
            is_alone = "list" not in forms
            asks = after_s > 0 and not is_alone  # whether a JVM service listens
            keys = [self._keys.queues, self._keys.used]
            args = [str(after_s * 1000), self._keys.wake, str(self._client.options.counts_kept_ms)]
            for queue in queues:
                other_due = self._client.due(queue, "hash" if is_alone else "list")
                keys += [*self._client.stored(queue, "hash"), other_due]
                args += [
                    queue,
                    self._keys.counts(queue),
                    self._keys.channel(queue) if asks else "",
                    str(int(queue in heard)),
                ]
            return list(map(as_text, self._client.run("forget", keys, args, "hash")))

        return self._client.in_each_form(act)

    def convert(self, queue: str, backup: str | None = None) -> Converted:
        """Moves some messages of a queue to a form of backup, the next due first; one round trip.

        At any moment each message is in one of the two forms. It keeps its id, its priority and its place among the
        messages of its due time, which ``list`` rounds up to whole ms. The queue's keys expire no sooner than they
        would have in either form.

        Args:
            queue: Its name.
            backup: The form to which the messages go, by default the store's own.
        """
        client, to = self._client, backup or self._client.backup
        [other] = {*BACKUPS} - {to}
        args = [client.wake(queue, to), queue, CONVERT_COUNT, CONVERT_BYTES]
        *numbers, place = client.run("convert", [*client.stored(queue, to), *client.stored(queue, other)], args, to)
        done = Converted(*map(int, numbers))
        if done.moved and as_text(place) == "first":
            self._registry.add(queue)  # the messages may come from another client, which registers nothing
        return done

    def convertible(self, queue: str, backup: str | None = None) -> int:
        """Counts the messages that ``convert`` has to move."""
        [other] = {*BACKUPS} - {backup or self._client.backup}
        return int(self._client.ask("ZCARD", self._client.due(queue, other)))

    def other_prefixes(self) -> dict[str, int]:
        """Counts the delayed messages under other key prefixes of this database, which this store does not see.

        It looks at a few thousand keys and queues at most, so it may miss some in a large database. It leaves out what
        the ACL forbids.

        Returns:
            Number of messages by prefix, the largest first; prefixes without messages are left out.
        """
        with suppress(ResponseError):
            found = set[str]()
            cursor = -1
            for _ in range(PREFIX_SCANS):
                cursor, keys = self._client.redis.scan(max(cursor, 0), match="*delayq:queues", count=SCAN_KEYS)
                found.update(prefix for key in keys if (prefix := self._keys.prefix_of(as_text(key))) is not None)
                if not cursor:
                    break
            others = sorted(found - {self._keys.prefix})[:PREFIXES]
            sizes = Counter({prefix: self._size_under(prefix) for prefix in others})
            return {prefix: size for prefix, size in sizes.most_common() if size}
        return {}

    def _is_bound(self, queue: str) -> bool:
        end, cursor = as_bytes(f"{self._keys.separator}{queue}"), -1
        pattern = glob_escaped(self._keys.bindings("")) + "*"
        for _ in range(PREFIX_SCANS):
            cursor, keys = self._client.redis.scan(max(cursor, 0), match=as_bytes(pattern), count=SCAN_KEYS)
            for reply in self._client.replies([("SMEMBERS", key) for key in keys]):
                if not isinstance(reply, Exception) and any(as_bytes(bound).endswith(end) for bound in reply):
                    return True
            if not cursor:
                break
        return False

    def _size_under(self, prefix: str) -> int:
        keys = replace(self._keys, prefix=prefix)
        with suppress(ResponseError):
            queues = islice(self._client.redis.smembers(keys.queues), PREFIX_QUEUES)
            with self._client.redis.pipeline(transaction=False) as pipe:
                for queue in map(as_text, queues):
                    for backup in BACKUPS:
                        pipe.zcard(as_bytes(keys.stored(queue, backup)[0]))
                sizes = pipe.execute(raise_on_error=False)
            return sum(size for size in sizes if isinstance(size, int))
        return 0

    def _purge_own(self, queue: str) -> int:
        return int(self._client.run("purge", self._client.stored(queue), [self._keys.counts(queue)]))

    def _purge_other(self, queue: str) -> int:
        def purge(forms: Sequence[str]) -> int:
            counts = [self._keys.counts(queue)]
            calls = [("purge", self._client.stored(queue, form), counts, form) for form in forms[1:]]
            return sum(int(self._client.run(*call)) for call in calls)

        return self._client.in_each_form(purge)
