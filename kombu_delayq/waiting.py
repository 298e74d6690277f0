"""The store's operations on messages that wait: found by their ids or by their due times."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from math import inf
from typing import Any

from kombu.log import get_logger

from kombu_delayq.calls import Caller, as_bytes, as_text
from kombu_delayq.marks import id_of
from kombu_delayq.results import Change, Page, Waiting

logger = get_logger(__name__)

#: Most messages beside the first of an id that one call finds.
MAX_TWINS = 100
#: About the most bytes that one call looks up, which bounds how long Redis is busy with it.
MAX_BYTES = 300_000


class WaitingMessages(Caller):
    """Looks up, cancels and moves single messages. All calls are short: give ids a few hundred at a time."""

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids; one round trip.

        Args:
            queues: Where to look.
            ids: Task ids, or ids under which messages are stored.

        Returns:
            By id, for those that wait, their messages, the next due first; several when two tasks have one id.
        """
        return self._of_ids("get", queues, ids)

    def cancel(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Removes the waiting messages of some ids; one round trip. Arguments and result are as of ``get``.

        What is returned will never be delivered. What is not returned did not wait.
        """
        return self._of_ids("cancel", queues, ids)

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due.

        Returns:
            For each: ``rescheduled``, or with nothing changed ``not_delayed``, ``changed`` (another body waits under
            the id by now) or ``due`` (the new due time is past by Redis's clock).
        """
        args: list[Any] = [self.keys.wake, queue]
        for message, due_ms, body in changes:
            args += [as_bytes(message.id), _sha(message.body), repr(due_ms), body]
        return list(map(as_text, self._run("reschedule", self._stored(queue), args)))

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue to its lists before they are due; the changes' due times are not read.

        Returns:
            For each: ``transferred``, or with nothing changed ``not_delayed`` or ``changed``, as of ``reschedule``.
        """
        args: list[Any] = [*self._list_of_priority]
        for message, _, body in changes:
            args += [as_bytes(message.id), _sha(message.body), body]
        return list(map(as_text, self._run("run_now", [*self._found(queue), *self._ready(queue)], args)))

    def browse(
        self,
        queue: str,
        after: Page | None = None,
        from_ms: float = -inf,
        to_ms: float = inf,
        count: int = 100,
    ) -> Page:
        """Reads a page of a queue's waiting messages, in the order of their due times.

        Args:
            queue: Its name.
            after: The page before; None for the first.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time before which messages are wanted, ms since the epoch.
            count: Most messages to return; fewer come when they are large.
        """
        last = after.last if after is not None else (b"", b"")
        args = [repr(from_ms), repr(to_ms), *last, count, MAX_BYTES]
        more, *parts = self._run("browse", [self.keys.due(queue), self.keys.backup(queue)], args)
        rows = list(_rows(parts))
        messages = [_waiting(queue, (id_of(as_bytes(member)), *rest)) for member, *rest in rows]
        cursor = (as_bytes(rows[-1][0]), as_bytes(rows[-1][1])) if rows else last
        return Page(messages, cursor, as_text(more) == "more")

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return int(self.client.zcount(self.keys.due(queue), from_ms, f"({to_ms!r}"))

    def refuse(self, ids: Sequence[str]) -> int:
        """Notes ids whose delay chains are to take no further step. Returns how many are new."""
        ttl_ms = round(self.options.cancelled_ttl * 1000)
        return int(self._run("refuse", [self.keys.cancelled], [ttl_ms, *map(as_bytes, ids)]))

    def accept(self, ids: Sequence[str]) -> int:
        """Takes ``refuse`` back. Returns for how many it was noted."""
        return int(self.client.zrem(self.keys.cancelled, *map(as_bytes, ids))) if ids else 0

    def _of_ids(self, operation: str, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        found: dict[str, list[Waiting]] = {}
        done = dict.fromkeys(queues if ids else (), 0)  # for how many of the ids each queue was searched
        while done:
            for queue, reply in self._search(operation, done, ids, len(queues)).items():
                for identity, parts in zip(ids[done[queue] :], reply, strict=False):
                    if parts:
                        found.setdefault(identity, []).extend(_waiting(queue, row) for row in _rows(parts))
                done[queue] += len(reply)
            done = {queue: count for queue, count in done.items() if count < len(ids)}
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found

    def _search(self, operation: str, done: dict[str, int], ids: Sequence[str], most: int) -> dict[str, list[Any]]:
        """Searches each queue for the ids after those done, one round trip.

        A queue that cannot be searched is logged and is done: it must not hide what was found, or removed, in others.

        Raises:
            redis.exceptions.ResponseError: None of the ``most`` queues can be searched.
        """
        calls = [
            (self._found(queue), [MAX_TWINS, MAX_BYTES, *map(as_bytes, ids[count:])]) for queue, count in done.items()
        ]
        replies = dict(zip(done, self._run_each(operation, calls), strict=True))
        failed = {queue: reply for queue, reply in replies.items() if isinstance(reply, Exception)}
        if len(failed) == most:
            raise next(iter(failed.values()))
        for queue, error in failed.items():
            logger.error("queue %r cannot be searched for delayed messages: %s", queue, error)
            done[queue] = len(ids)
        return {queue: reply for queue, reply in replies.items() if queue not in failed}


def _rows(parts: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(iter(parts),) * 4, strict=True)


def _waiting(queue: str, row: Iterable[Any]) -> Waiting:
    identity, due, priority, body = row
    return Waiting(queue, as_text(identity), float(due), int(priority or 0), as_bytes(body) if priority else None)


def _sha(body: bytes | None) -> str:
    return sha1(body or b"", usedforsecurity=False).hexdigest()
