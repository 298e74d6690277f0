"""How long messages waited in their queues, counted by the consumer that takes them."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from time import time

from kombu_delayq.message.fields import Message
from kombu_delayq.message.ready import ready_since_s
from kombu_delayq.redis.replies import checked
from kombu_delayq.store.counts import WAIT_BOUNDS_S, WAIT_FIELDS, WAITED_S, WAITED_UNKNOWN

#: The counters of a queue, in the order of the numbers that are kept of it.
_FIELDS = (*WAIT_FIELDS, WAITED_S, WAITED_UNKNOWN)
_SUM_AT, _UNKNOWN_AT = len(WAIT_FIELDS), len(WAIT_FIELDS) + 1
#: Adds to counters in Redis; see ``Fetching.count_waits``.
CountWaits = Callable[[Mapping[str, Mapping[str, int]]], dict[str, Exception | None]]
#: A time from here on, in s since the epoch, is none: any program may write numbers that fit no clock and no counter.
_LATEST_S = 2.0**40


class QueueWaits:
    """Counts in memory, and now and then in Redis. One thread calls ``note``, another one may call ``flush``."""

    def __init__(self) -> None:
        self._noted: dict[str, list[int]] = {}
        self._flushed: dict[str, list[int]] = {}

    def begin(self, queue: str) -> None:
        """Counts the messages of a queue from now on."""
        self._noted.setdefault(queue, [0] * len(_FIELDS))

    def note(self, queue: str, message: Message) -> None:
        """Counts a message that a consumer takes now. One whose time has not come is not counted: it goes back."""
        numbers = self._noted.get(queue)
        if numbers is None:
            return
        since_s = ready_since_s(message)
        if since_s is None or not 0 <= since_s < _LATEST_S:
            numbers[_UNKNOWN_AT] += 1
            return
        # Both are whole seconds, so that neither is taken for the longer one.
        waited_s = int(time()) - int(since_s)
        if waited_s >= 0:
            numbers[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
            numbers[_SUM_AT] += waited_s

    def flush(self, count_waits: CountWaits) -> None:
        """Adds to the counters in Redis what has come since the last time; one round trip where anything has.

        Raises:
            redis.exceptions.RedisError, OSError: Redis has not counted, or not all queues. The next call tries again.
        """
        now = {queue: list(numbers) for queue, numbers in list(self._noted.items())}
        grown = {queue: self._grown(queue, numbers) for queue, numbers in now.items()}
        if changed := {queue: counters for queue, counters in grown.items() if counters}:
            replies = count_waits(changed)
            self._flushed.update({queue: now[queue] for queue, error in replies.items() if error is None})
            checked(replies.values())

    def _grown(self, queue: str, numbers: list[int]) -> dict[str, int]:
        before = self._flushed.get(queue) or [0] * len(_FIELDS)
        return {name: new - old for name, new, old in zip(_FIELDS, numbers, before, strict=True) if new != old}
