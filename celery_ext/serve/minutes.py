"""What has happened to the messages of queues minute by minute, as `lua/include/shared/minutes.lua` keeps it."""

import sys
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from kombu_delayq.message import pages
from kombu_delayq.store import StorePart

#: Most strings in one round trip.
_STRINGS = 2000


class Minutes(NamedTuple):
    """What has happened in each minute of some time, the oldest first.

    Attributes:
        delivered: How many messages came due and went to their queue.
        late_ms: How late the latest of them was, in ms; 0 where none was later than 5 ms.
        retried: How many tasks failed and were to be tried again, as far as our workers ran them.
        failed: How many failed for good.
        dead: How many became dead letters; counted for the queue that gets them.
    """

    delivered: list[int]
    late_ms: list[int]
    retried: list[int]
    failed: list[int]
    dead: list[int]


class MinuteFigures(StorePart):
    """Reads what ``Figures.count_minute`` and the scripts have counted minute by minute."""

    def read(self, queues: Sequence[str], now_ms: float, count: int = 60) -> dict[str, Minutes]:
        """Reads the minutes of queues up to the present one; a round trip for each thousand queues, or 80 for a day.

        Args:
            queues: Their names.
            now_ms: Redis's clock, ms since the epoch.
            count: How many minutes, at most those of a day.

        Returns:
            By queue, the latest minute last. A queue that Redis refuses to read counts as one without any.
        """
        last = int(now_ms // 60_000)
        first = last - count + 1
        hours = range(first // 60, last // 60 + 1)
        commands = [("GET", self._keys.minutes(queue, hour)) for queue in queues for hour in hours]
        replies = iter([reply for page in pages(commands, _STRINGS) for reply in self._client.replies(page)])
        start, end = first - 60 * hours[0], last + 1 - 60 * hours[0]
        found = {}
        for queue in queues:
            blocks: list[list[int]] = [[] for _ in Minutes._fields]
            for numbers in [_numbers(next(replies)) for _ in hours]:
                for at, block in enumerate(blocks):
                    block += numbers[60 * at : 60 * at + 60]
            found[queue] = Minutes(*(block[start:end] for block in blocks))
        return found


def total(of_queues: Sequence[Minutes], count: int) -> Minutes:
    """Returns the minutes of several queues together: sums, and of lateness the largest.

    Args:
        of_queues: Their minutes.
        count: How many minutes they have.
    """
    nothing = Minutes(*([0] * count for _ in Minutes._fields))
    columns = [list(zip(*column, strict=True)) for column in zip(nothing, *of_queues, strict=True)]
    return Minutes(
        *(
            [(max if name == "late_ms" else sum)(row) for row in column]
            for name, column in zip(Minutes._fields, columns, strict=True)
        )
    )


def _numbers(reply: Any) -> list[int]:
    """Returns the numbers of an hour, all blocks; zeros where there is none."""
    size = 240 * len(Minutes._fields)
    raw = bytes(reply)[:size].ljust(size, b"\0") if isinstance(reply, bytes) else bytes(size)
    numbers = array("I", raw)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tolist()
