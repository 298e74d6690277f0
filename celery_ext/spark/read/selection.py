"""Which waiting messages a reader selects."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Self

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import ReadOptions
from kombu_delayq.message.due import ms_of


@dataclass(frozen=True)
class WaitingSelection:
    """Queues and due times of the messages that are read.

    Attributes:
        queues: Names of the queues; None for all.
        from_ms: Earliest due time, ms since the epoch.
        to_ms: End of the due times, ms since the epoch; a message that is due then is left out.
    """

    queues: Collection[str] | None = None
    from_ms: float = -inf
    to_ms: float = inf

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Returns the selection that options describe.

        Raises:
            InvalidSparkOption: ``due_after`` is later than ``due_before``.
        """
        after, before = options.due_after, options.due_before
        if after is not None and before is not None and after > before:
            raise InvalidSparkOption(
                f"due_after={after.isoformat()} is later than due_before={before.isoformat()}; nothing is due between"
            )
        queues = None if options.queue is None else tuple(dict.fromkeys(options.queue))
        return cls(queues, -inf if after is None else ms_of(after), inf if before is None else ms_of(before))
