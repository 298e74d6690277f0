"""Messages under the names that keys had before Redis kept them in hash slots; they move to their new names."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import monotonic, sleep
from typing import Any, cast
from uuid import uuid4

from kombu.log import get_logger

from kombu_delayq.connection import slots
from kombu_delayq.connection.replies import time_ms
from kombu_delayq.connection.text import as_bytes, as_text, digest
from kombu_delayq.message.unacked import Note, read_note
from kombu_delayq.store.client import StoreClient, StorePart
from kombu_delayq.store.formats.hash import shared_id
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import rows_of

logger = get_logger(__name__)

#: Most delayed messages, ready messages and messages in hand that one call moves, and about the most bytes.
PAGE, READY_PAGE, HELD_PAGE, PAGE_BYTES = 200, 50, 50, 300_000
#: Whoever moves messages holds a lease for ``LEASE_S``. Others wait for it for ``WAIT_S`` at most. Both in s.
LEASE_S, WAIT_S, POLL_S = 15.0, 5.0, 0.02
#: Most further messages of one id that one call finds.
MAX_TWINS = 100


class Renamed(StorePart):
    """Finds and moves what is kept under the names of a plain server, on a server with hash slots.

    Such names come from publishers of an earlier release, from stock ones that publish with a priority, and from data
    that was copied from a plain server. On a plain server there is nothing to move, and no call asks Redis.

    A message is stored under the new name first and leaves the old one after that, so it is never in neither. One
    process at a time moves messages; a publisher may go on to use the old names meanwhile. Only the release before
    could change a message between the two steps: one that it moves to another due time keeps that, and one that it
    purges may be delivered.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        self._registry = QueueRegistry(client)
        self._old = replace(self._keys, slots=False)
        self._has_slots = self._keys.slots

    def may_have(self, queue: str) -> bool:
        """Whether the delayed messages of a queue have other names than on a plain server; asks no Redis."""
        return self._has_slots and self._old.due(queue) != self._keys.due(queue)

    def due(self, queue: str) -> str:
        """Returns the ZSET of a queue's due times under its old name."""
        return self._old.due(queue)

    def names(self) -> list[str]:
        """Returns the queues that the registry of a plain server has; one round trip, none on a plain server.

        Queues whose names cannot be used here are left out. Their messages stay where they are.
        """
        if not self._has_slots:
            return []
        found = sorted(map(as_text, self._client.redis.smembers(self._old.queues)))
        return list(filter(self._can_move, found))

    def queues(self, known: Iterable[str]) -> list[str]:
        """Returns the queues that have anything under old names; two round trips.

        Args:
            known: Names of queues to look at, besides those that the registry of a plain server has. Stock publishers
                register no queue.
        """
        if not self._has_slots:
            return []
        registered, others = self.names(), sorted(filter(self._can_move, {*known}))
        looks = [(queue, old) for queue in others if queue not in registered for old in self.lists(queue)]
        replies = self._client.replies([("EXISTS", old) for _, old in looks]) if looks else []
        found = [queue for (queue, _), reply in zip(looks, replies, strict=True) if reply == 1]
        return sorted({*registered, *found})

    def size(self, queue: str) -> int:
        """Counts what a queue has under old names, delayed or not; one round trip."""
        commands = [("LLEN", old) for old in self.lists(queue)]
        commands += [("ZCARD", self._old.due(queue))] if self.may_have(queue) else []
        return sum(self._client.send(commands)) if commands else 0

    def lists(self, queue: str) -> list[str]:
        """Returns the lists of a queue that have other names here, under their old names."""
        return [old for old, _ in self._lists(queue)]

    def dead_letter_queues(self) -> list[str]:
        """Returns the queues of dead letters that are noted under the old name; one round trip at most."""
        return list(map(as_text, self._client.redis.smembers(self._old.dead_letters))) if self._has_slots else []

    def held(self) -> Iterator[list[tuple[Any, Note | None]]]:
        """Returns pages of what consumers held on a plain server: tags, and the notes as far as they can be read."""
        cursor = -1 if self._has_slots else 0
        while cursor:
            cursor, page = self._client.redis.hscan(as_bytes(self._old.unacked("")), max(cursor, 0), count=HELD_PAGE)
            yield [(tag, read_note(as_bytes(noted))) for tag, noted in cast("dict[Any, Any]", page).items()]

    @contextmanager
    def moving(self, wait_s: float = WAIT_S) -> Iterator[bool]:
        """Holds the right to move messages. Yields whether nobody else holds it after ``wait_s``."""
        name, until = uuid4().hex, monotonic() + wait_s
        keys, args = [self._keys.queues, self._keys.renaming], [name, round(LEASE_S * 1000)]
        while not (holds := as_text(self._client.run("lead", keys, args)[0]) == name) and monotonic() < until:
            sleep(POLL_S)
        try:
            yield holds
        finally:
            if holds:
                self._client.run("release", [self._keys.renaming], [name])

    def move(self, queue: str) -> int:
        """Moves some of a queue's messages, for a caller within ``moving``; a few round trips.

        Returns:
            How many messages it has moved; 0 if none are left. Then the queue's old name is gone, too.
        """
        moved = self.move_delayed(queue)
        for old, new in self._lists(queue):
            moved += self._move_list(old, new)
        if self.may_have(queue):  # Redisson's own keys keep their names, those beside them do not
            pairs = zip(
                self._old.stored(queue, "redisson")[2:], self._client.stored(queue, "redisson")[2:], strict=True
            )
            moved += sum(self._move_fields(old, new) for old, new in pairs)
        if not moved:
            self._clear(queue)
        return moved

    def move_delayed(self, queue: str, from_ms: float = -inf, to_ms: float = inf, count: int = PAGE) -> int:
        """Moves the first delayed messages that are due from ``from_ms`` on and before ``to_ms``. Returns how many."""
        if not self.may_have(queue):
            return 0
        bounds = [repr(from_ms), repr(to_ms), "", "", "", "", count, PAGE_BYTES, "1"]
        _, found, *_ = self._client.run("scan", self._old.stored(queue, "hash"), bounds, "hash")
        rows = list(rows_of(found, 5))
        self._carry(queue, [row[:4] for row in rows if row[2]])
        if lost := [row[4] for row in rows if not row[2]]:
            logger.error("queue %r: %d delayed messages had no body and are lost", queue, len(lost))
            self._client.ask("ZREM", self._old.due(queue), *lost)
        return len(rows)

    def bring(self, queues: Iterable[str], ids: Sequence[str]) -> None:
        """Moves the delayed messages of some ids, if there are any under old names."""
        there = [queue for queue in queues if self.may_have(queue)]
        if there and ids and self._client.ask("EXISTS", self._old.queues):
            with self.moving():
                for queue in there:
                    self._bring(queue, ids)

    def bring_page(self, queue: str, from_ms: float, to_ms: float, count: int) -> None:
        """Moves the messages of a queue that may come on the next page of a caller who reads it by due time."""
        if self.may_have(queue) and self._client.ask("EXISTS", self._old.queues):
            with self.moving():
                moved = 1
                left = count
                while moved and left > 0:
                    moved = self.move_delayed(queue, from_ms, to_ms, left)
                    left -= moved

    def move_held(self) -> int:
        """Puts some messages back that consumers held on a plain server, for a caller within ``moving``.

        A message whose queue cannot be found stays. Returns how many went back to their queues.
        """
        moved = 0
        for page in self.held():
            for tag, note in page:
                queue = None if note is None else self._queue_of(note)
                if note is None or queue is None:
                    continue
                step = self._client.list_of_priority[note.priority]
                self._client.ask_once("RPUSH", self._client.ready(queue)[step], note.given_back())
                index = self._old.unacked_index("")
                self._client.send([("HDEL", self._old.unacked(""), tag), ("ZREM", index, tag)])
                moved += 1
            if moved:
                break
        return moved

    def purge_delayed(self, queue: str) -> int:
        """Removes the delayed messages of a queue under its old name, while nobody moves any. Returns how many."""
        if not (self.may_have(queue) and queue in self.names()):
            return 0
        with self.moving():
            return int(self._client.run("purge", self._old.stored(queue, "hash"), [self._old.counts(queue)], "hash"))

    def purge_ready(self, queue: str) -> int:
        """Removes the ready messages of a queue under old names, while nobody moves any. Returns how many."""
        lists = self.lists(queue)
        if not (lists and any(self._client.send([("LLEN", old) for old in lists]))):
            return 0
        with self.moving():
            sizes = self._client.send([command for old in lists for command in (("LLEN", old), ("UNLINK", old))])
        return sum(sizes[::2])

    def shorten(self, key: str, messages: Sequence[Any]) -> int:
        """Removes messages from the end of a list, the first of them at its end, as far as they are there still."""
        return int(self._client.run("shorten", [key], list(messages)))

    def move_notes(self) -> None:
        """Moves the names of the queues of dead letters, and drops what has no use under its old name."""
        if not self._has_slots:
            return
        if letters := self._client.redis.smembers(self._old.dead_letters):
            self._client.ask("SADD", self._keys.dead_letters, *letters)
        gone = [self._old.dead_letters, self._old.used, *self._old.leases]
        self._client.send([("UNLINK", key) for key in (*gone, self._old.consumers(""), self._old.consumed(""))])

    def _can_move(self, queue: str) -> bool:
        """Whether the keys of a queue can be in one slot, under the new names and, as scripts read them, the old."""
        old = self._old.stored(queue, "hash")
        return self._keys.has_slot(queue) and all(slots.share_one(old[0], key) for key in old[1:])

    def _bring(self, queue: str, ids: Sequence[str]) -> None:
        done = 0
        while done < len(ids):
            args = [MAX_TWINS, PAGE_BYTES, *map(as_bytes, ids[done:])]
            found = self._client.run("get", self._old.stored(queue, "hash"), args, "hash")
            self._carry(queue, [row for parts in found for row in rows_of(parts) if row[2]])
            done += len(found)

    def _carry(self, queue: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Stores messages under their new name and removes them under the old. Rows: id, due time, priority, body."""
        if not rows:
            return
        old = self._old.stored(queue, "hash")
        offers: list[Any] = [self._client.wake(queue), queue, self._margin_ms(old[0])]
        asked: list[Any] = [0, self._old.counts(queue)]
        for identity, due, priority, body in rows:
            stored = as_text(identity)
            offers += [as_bytes(shared_id(stored) or stored), due, priority, body]
            asked += [identity, digest(body), due, ""]
        self._registry.run("offer", queue, self._client.stored(queue), offers)
        words = map(as_text, self._client.run("discard", old, asked, "hash"))
        for (identity, _, _, body), word in zip(rows, words, strict=True):
            if word == "changed":  # another process has just changed it, and it is moved again as it is now
                stored = as_text(identity)
                self._client.run("retract", self._client.stored(queue), [shared_id(stored) or stored, digest(body)])

    def _margin_ms(self, due: str) -> int:
        """Returns x-expires of a queue in ms, as far as its keys tell; 0 for none."""
        left_ms, latest, time = self._client.send([("PTTL", due), ("ZREVRANGE", due, 0, 0, "WITHSCORES"), ("TIME",)])
        if left_ms <= 0 or not latest:
            return 0
        score = latest[0][1] if isinstance(latest[0], list | tuple) else latest[1]
        ahead_ms = max(float(score) - time_ms(time), 0.0)
        return max(int(left_ms - ahead_ms), 1)

    def _move_list(self, old: str, new: str) -> int:
        messages = list(reversed(self._client.ask("LRANGE", old, -READY_PAGE, -1)))
        if messages:
            self._client.ask_once("LPUSH", new, *messages)
            self.shorten(old, messages)
        return len(messages)

    def _move_fields(self, old: str, new: str) -> int:
        """Moves some fields of a HASH; those that the new one has stay there. Returns how many."""
        _, page = self._client.redis.hscan(as_bytes(old), 0, count=PAGE)
        fields = cast("dict[Any, Any]", page)
        if fields:
            [left_ms] = self._client.send([("PTTL", old)])
            self._client.send([("HSETNX", new, *field) for field in fields.items()])
            self._client.send([("PEXPIRE", new, left_ms)] if left_ms > 0 else [])
            self._client.ask("HDEL", old, *fields)
        return len(fields)

    def _lists(self, queue: str) -> list[tuple[str, str]]:
        """Returns the lists of a queue that have another name on a plain server, each with its name here."""
        if not self._has_slots:
            return []
        pairs = zip(self._client.ready_of(self._old, queue), self._client.ready(queue), strict=True)
        return [(old, new) for old, new in pairs if old != new]

    def _queue_of(self, note: Note) -> str | None:
        """Returns the queue to which a message in hand goes back, or None if no binding of a direct exchange tells."""
        if not note.exchange:
            return note.routing_key
        tables = [keys.bindings(note.exchange) for keys in (self._old, self._keys)]
        for bound in self._client.send([("SMEMBERS", table) for table in tables]):
            for row in sorted(map(as_text, bound)):
                routing_key, *_, queue = row.split(self._keys.separator)
                if routing_key == note.routing_key:
                    return queue
        return None

    def _clear(self, queue: str) -> None:
        """Forgets the old name of a queue that has nothing left under it. A publisher that goes on notes it again."""
        if self.may_have(queue):
            kept = [*self._old.stored(queue, "hash")[2:], *self._old.stored(queue, "redisson")[2:]]
            kept += [self._old.counts(queue), self._old.bucket(queue)]
            self._client.send([("UNLINK", key) for key in kept])
        else:
            self._registry.add(queue)  # its messages stay where they are, and transfer workers have to know of them
        self._client.ask("SREM", self._old.queues, queue)
