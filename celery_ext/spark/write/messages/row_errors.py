"""Rows that make no task: what is wrong with each, and its way to a queue of dead letters."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from celery.utils.nodenames import anon_nodename

from celery_ext.dead_letters.bury import DEAD_LETTER, ERROR_LENGTH
from kombu_delayq.errors import quoted


class RowError(NamedTuple):
    """What is wrong with a row.

    Attributes:
        column: Name of the column; empty when it is the row as a whole.
        value: What stands there.
        reason: Why it makes no task.
    """

    column: str
    value: Any
    reason: str

    def of_row(self, row_id: str) -> str:
        """Returns the fault in words. row_id: how the row is called."""
        where = f"column {self.column}, " if self.column else ""
        return f"{where}value {quoted(self.value)}: {self.reason} (row {row_id})"


class RowErrors:
    """The faults of one batch, at most one a row."""

    def __init__(self) -> None:
        self.of: dict[int, RowError] = {}

    def add(self, at: int, column: str, value: Any, reason: object) -> None:
        """Notes what is wrong with the row at this place, unless something is already."""
        self.of.setdefault(at, RowError(column, value, str(reason)))

    def in_column(self, column: str) -> Callable[[int, Any, object], None]:
        """Returns what notes the faults of one column."""
        return lambda at, value, reason: self.add(at, column, value, reason)

    def parse(self, column: str, values: Iterable[Any], parse: Callable[[Any], Any]) -> list[Any]:
        """Returns each value parsed, None for what is None or wrong. ``parse`` raises ValueError for what is wrong."""
        found = []
        for at, value in enumerate(values):
            try:
                found.append(None if value is None else parse(value))
            except (ValueError, RecursionError) as reason:
                self.add(at, column, value, reason)
                found.append(None)
        return found


def dead_letter(message: str, error: str, way: tuple[str, str] | None) -> str:
    """Returns a message with the reason why it is among the dead letters, as ``bury`` writes it.

    Args:
        message: As it would be sent to the queue of dead letters.
        error: What is wrong with the row.
        way: Exchange and routing key by which its task would have gone to its queue, or None.
    """
    letter: dict[str, Any] = json.loads(message)
    properties = letter["properties"]
    if properties.get("expiration") is None:  # of a task that expires; Celery writes no such property without a time
        properties.pop("expiration", None)
    exchange, routing_key = way or (None, None)
    properties[DEAD_LETTER] = {
        "reason": "bad row",
        "error": error[:ERROR_LENGTH],
        "retries": 0,
        "exchange": exchange,
        "routing_key": routing_key,
        "worker": anon_nodename(),
        "at": datetime.now(UTC).isoformat(),
    }
    return json.dumps(letter)
