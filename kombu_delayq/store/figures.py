"""The store's figures: how many messages are where, when they come due, and what has happened to them so far."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.message import pages
from kombu_delayq.redis import Args, Call, Command, HashKey, ListKeys, ZSetKey, operation, passes
from kombu_delayq.store.client import count_minute
from kombu_delayq.store.counts import BUCKET_FIELDS, QueueCounts, QueueStats, counts_of
from kombu_delayq.store.part import StorePart
from kombu_delayq.text import as_text

#: Most bounds that one call of ``due_counts`` goes through: with a million messages Redis is busy for about 1 ms.
BOUNDS_A_CALL = 250
#: Most queues in one round trip.
QUEUES_A_ROUND_TRIP = 500
#: Most messages in hand that one call of ``held_page`` looks at, and about the most bytes.
HELD_COUNT, HELD_BYTES = 500, 300_000


@operation()
def stats(*, due: ZSetKey, ready: ListKeys, base: str) -> list[Any]: ...
@operation()
def due_counts(*, due: ZSetKey, bounds: Args[float]) -> list[int]: ...
@operation()
def held_page(*, unacked_index: ZSetKey, unacked: HashKey, start: int, count: int, max_bytes: int) -> list[Any]: ...


class Figures(StorePart):
    """Counts the messages of many queues at once. All calls are short, however much the queues hold."""

    def overview(self, queues: Sequence[str]) -> list[QueueStats]:
        """Counts the messages of queues.

        One round trip for each few hundred queues.

        Returns:
            The numbers of each queue, in the order of ``queues``. Those of a queue that Redis refuses to count, such as
            for a key of another type, are 0, with the ``error``.

        Raises:
            redis.exceptions.NoPermissionError: The user's ACL allows none of the queues.
        """
        client = self._client
        base = self._keys.base
        calls = [stats(due=client.due(queue), ready=client.ready(queue), base=base(queue)) for queue in queues]
        replies = self._run_each(calls)
        return [self._stats(queue, reply) for queue, reply in zip(queues, replies, strict=True)]

    def count_minute(self, found: Mapping[str, Mapping[Any, int]]) -> dict[str, Exception]:
        """Counts what has become of messages; one round trip.

        Args:
            found: By queue, by how much its counters grow, as ``counts_of`` reads them. Each ``Outcome`` counts in the
                present minute, too.

        Returns:
            Of the queues that are not counted, the error.
        """
        calls = [
            count_minute(counters=self._keys.counts(queue), grown=counts.items()) for queue, counts in found.items()
        ]
        replies = self._client.run_each(calls)[0] if calls else ()
        return {queue: reply for queue, reply in zip(found, replies, strict=True) if isinstance(reply, Exception)}

    def due_counts(self, queues: Sequence[str], bounds_ms: Sequence[float]) -> dict[str, list[int]]:
        """Counts how many messages of queues come due when.

        One round trip for each few hundred queues.

        Args:
            queues: Names of the queues.
            bounds_ms: Bounds of the buckets, ms since the epoch, ascending; ``inf`` with either sign is allowed.

        Returns:
            For each queue, how many of its messages are due from each bound on and before the next one, so one number
            less than there are bounds. A queue that Redis refuses to count is left out.

        Raises:
            redis.exceptions.NoPermissionError: The user's ACL allows none of the queues.
        """
        spans = range(0, len(bounds_ms) - 1, BOUNDS_A_CALL)
        slices = [list(map(float, bounds_ms[at : at + BOUNDS_A_CALL + 1])) for at in spans]
        dues = map(self._client.due, queues)
        replies = iter(self._run_each([due_counts(due=due, bounds=bounds) for due in dues for bounds in slices]))
        parts = {queue: [next(replies) for _ in slices] for queue in queues}
        return {
            queue: [count for part in found for count in part]
            for queue, found in parts.items()
            if not any(isinstance(part, Exception) for part in found)
        }

    def counts(self, queues: Sequence[str], held: Collection[str] | None = None) -> dict[str, QueueCounts]:
        """Reads what the scripts have counted; one round trip for each few hundred queues.

        The counters of a queue only grow. They begin at 0 when the queue is forgotten or expires. The sum of the
        lateness is an estimate: a message that is late by no more than the first bound counts half of it. Of other
        batches the script reads the due times of the first and of the last message, and takes those between as evenly
        spread.

        Args:
            queues: Their names.
            held: Those of which to read the rate that holds messages back, such as those with overdue messages; by
                default all.

        Returns:
            The counters of each queue; zeros for a queue of which nothing is counted.
        """
        held = queues if held is None else [queue for queue in queues if queue in held]
        commands: list[Command] = [("HGETALL", self._keys.counts(queue)) for queue in queues]
        commands += [("HMGET", self._keys.bucket(queue), *BUCKET_FIELDS) for queue in held]
        replies = [
            reply
            for at in range(0, len(commands), QUEUES_A_ROUND_TRIP)
            for reply in self._client.replies(commands[at : at + QUEUES_A_ROUND_TRIP])
        ]
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        for error in errors:
            if not str(error).startswith("WRONGTYPE") and not self._is_of_a_part(error, among=replies):
                raise error
        buckets = dict(zip(held, replies[len(queues) :], strict=True))
        return {
            queue: counts_of(_read(reply, {}), _read(buckets.get(queue), []))
            for queue, reply in zip(queues, replies, strict=False)
        }

    def held(self, most: int = 100_000) -> dict[str, int]:
        """Counts the messages in the hands of consumers, by queue; a round trip for each 500, or 300 kB.

        Consumers of stock kombu note no queue, so their messages are counted by routing key. Messages come and go
        meanwhile, so with more than a page the numbers are no snapshot.

        Args:
            most: How many messages to look at, about; those that are held for longest come first. A cluster counts all,
                in one round trip a node, because each queue has its own key.
        """
        found = Counter[str]()
        if self._keys.groups is not None:
            queues = self._client.slot_groups()
            counts = self._client.send([("HLEN", self._keys.unacked(queue)) for queue in queues])
            found.update(dict(zip(queues, counts, strict=True)))
            return {queue: count for queue, count in found.items() if count}
        start, looked = 0, 1
        while looked and start < most:
            looked, page = self.held_page(start)
            found.update(page)
            start += looked
        return dict(found)

    def held_page(self, start: int) -> tuple[int, Counter[str]]:
        """Counts some messages in the hands of consumers, as ``held`` does; one round trip.

        Args:
            start: How many messages to skip, those that are held for longest.

        Returns:
            How many messages it has looked at, 0 at the end; and their number by queue.
        """
        held, found = self._client.held(""), Counter[str]()
        index, unacked = held.unacked_index, held.unacked
        call = held_page(unacked_index=index, unacked=unacked, start=start, count=HELD_COUNT, max_bytes=HELD_BYTES)
        looked, *rows = self._client.run(call)
        for tail, count in zip(rows[0::2], rows[1::2], strict=True):
            found[_name_in(tail)] += count
        return looked, found

    def _stats(self, queue: str, reply: Any) -> QueueStats:
        if isinstance(reply, Exception):
            return QueueStats.uncounted(queue, reply, is_passing=passes(reply) or self._client.pool.is_partial(reply))
        return QueueStats.of(queue, reply)

    def _run_each(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Runs a script for each call. Errors of single queues are among the replies.

        Raises:
            redis.exceptions.NoPermissionError: All are refused.
            Exception: Any error that is no refusal of Redis. In a cluster, only if no node answers.
        """
        of_pages = (self._client.run_each(page)[0] for page in pages(calls, QUEUES_A_ROUND_TRIP))
        replies = [reply for of_page in of_pages for reply in of_page]
        self._check(replies)
        if replies and all(isinstance(reply, NoPermissionError) for reply in replies):
            raise replies[0]
        return replies

    def _check(self, replies: Sequence[Any]) -> None:
        """Raises the first error that is no refusal of Redis, nor that of one node of several."""
        for reply in replies:
            is_refusal = not isinstance(reply, Exception) or isinstance(reply, ResponseError)
            if not is_refusal and not self._is_of_a_part(reply, among=replies):
                raise reply

    def _is_of_a_part(self, error: Exception, among: Sequence[Any]) -> bool:
        """Whether an error is that of a node of a cluster while other nodes answer."""
        if isinstance(error, ResponseError) or not self._client.pool.is_partial(error):
            return False
        return not all(isinstance(reply, Exception) for reply in among)


def _read(reply: Any, missing: Any) -> Any:
    return missing if reply is None or isinstance(reply, Exception) else reply


def _name_in(tail: Any) -> str:
    """Returns the name in the end of a note, which is a JSON text; empty where there is none."""
    try:
        name = json.loads(as_text(tail))
    except ValueError:
        return ""
    return name if isinstance(name, str) else ""
