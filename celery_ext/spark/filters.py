"""Which waiting messages are wanted, by options and by filters that Spark pushes down."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Self

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import ReadOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What a filter on ``due`` lets pass beyond its bounds, in ms: due times in Redis are finer than those in Spark, or
#: coarser thousands of years ahead. Spark applies the filter once more.
_MARGIN_MS = 1.0


@dataclass(frozen=True)
class Selection:
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

    def narrowed(self, filters: Iterable[Filter]) -> tuple["Selection", list[Filter]]:
        """Applies filters.

        Returns:
            What they leave, and those of them that Spark is to apply: all but the ones on queues, which are exact.
        """
        selection, rest = self, []
        for each in filters:
            of_queue = _queues_of(each)
            if of_queue is not None:
                selection = selection._within(of_queue)
            elif not _says_nothing(each):
                from_ms, to_ms = _bounds_of(each)
                selection = replace(
                    selection, from_ms=max(selection.from_ms, from_ms), to_ms=min(selection.to_ms, to_ms)
                )
                rest.append(each)
        return selection, rest

    def _within(self, queues: Collection[str]) -> "Selection":
        if self.queues is not None:
            queues = [queue for queue in self.queues if queue in queues]
        return replace(self, queues=tuple(queues))


def _queues_of(given: Filter) -> Collection[str] | None:
    """Returns the queues that a filter asks for; None when it asks for something else."""
    match given:
        case EqualTo(("queue",), str(queue)):
            return (queue,)
        case In(("queue",), values) if all(isinstance(value, str) for value in values):
            return tuple(dict.fromkeys(values))
    return None


def _says_nothing(given: Filter) -> bool:
    return given == IsNotNull(("queue",))  # every row has one


def _bounds_of(given: Filter) -> tuple[float, float]:
    """Returns between which due times the messages are that may pass a filter, in ms since the epoch."""
    match given:
        case GreaterThan(("due",), datetime() as due) | GreaterThanOrEqual(("due",), datetime() as due):
            return _ms(due) - _MARGIN_MS, inf
        case LessThan(("due",), datetime() as due) | LessThanOrEqual(("due",), datetime() as due):
            return -inf, _ms(due) + _MARGIN_MS
        case EqualTo(("due",), datetime() as due):
            return _ms(due) - _MARGIN_MS, _ms(due) + _MARGIN_MS
        case In(("due",), values) if values and all(isinstance(value, datetime) for value in values):
            return _around(values)
    return -inf, inf


def _around(moments: Iterable[Any]) -> tuple[float, float]:
    all_ms = list(map(_ms, moments))
    return min(all_ms) - _MARGIN_MS, max(all_ms) + _MARGIN_MS


def _ms(moment: datetime) -> float:
    # As of an eta, so that a message due in that very moment has that very number.
    return (moment - _EPOCH) / timedelta(microseconds=1) / 1000
