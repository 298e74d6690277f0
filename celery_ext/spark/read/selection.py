"""Which waiting messages are wanted."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Self

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import ReadOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class WaitingSelection:
    """Which messages are read.

    Attributes:
        queues: Names of the queues; None for all.
        from_ms: Least due time, ms since the epoch.
        to_ms: Due time before which messages are wanted, ms since the epoch.
    """

    queues: Collection[str] | None = None
    from_ms: float = -inf
    to_ms: float = inf

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Reads it from options.

        Raises:
            InvalidSparkOption: They contradict each other.
        """
        after, before = options.due_after, options.due_before
        if after is not None and before is not None and after > before:
            raise InvalidSparkOption(
                f"due_after={after.isoformat()} is later than due_before={before.isoformat()}; nothing is due between"
            )
        queues = None if options.queue is None else tuple(dict.fromkeys(options.queue))
        return cls(queues, -inf if after is None else _ms(after), inf if before is None else _ms(before))


def _ms(moment: datetime) -> float:
    # As of an eta, so that a message due in that very moment has that very number.
    return (moment - _EPOCH) / timedelta(microseconds=1) / 1000
