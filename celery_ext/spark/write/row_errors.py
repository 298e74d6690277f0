"""Why rows of a batch make no task."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kombu_delayq.errors import quoted


class RowError(NamedTuple):
    """Why a row makes no task.

    Attributes:
        column: Name of the column; empty when the row as a whole is wrong.
        value: Value of the row in this column.
        reason: What is wrong with the value.
    """

    column: str
    value: Any
    reason: str

    def describe(self, task_id: str) -> str:
        """Returns the error in words. task_id: Task id of the row."""
        where = f"column {self.column}, " if self.column else ""
        return f"{where}value {quoted(self.value)}: {self.reason} (row {task_id})"


class RowErrors:
    """The errors of one batch, at most one for a row.

    Attributes:
        by_row: The errors, by number of the row in its batch.
    """

    def __init__(self) -> None:
        self.by_row: dict[int, RowError] = {}

    def add(self, row: int, column: str, value: Any, reason: object) -> None:
        """Adds an error, unless the row has one already."""
        self.by_row.setdefault(row, RowError(column, value, str(reason)))

    def in_column(self, column: str) -> Callable[[int, Any, object], None]:
        """Returns ``add`` for one column."""
        return lambda row, value, reason: self.add(row, column, value, reason)

    def parse(self, column: str, values: Iterable[Any], parse: Callable[[Any], Any]) -> list[Any]:
        """Parses a column, and adds an error for each value that cannot be parsed.

        Args:
            column: Name of the column.
            values: One for each row.
            parse: Parses a value; raises ValueError for a wrong one.

        Returns:
            The parsed values; None for NULL and for a wrong value.
        """
        parsed = []
        for row, value in enumerate(values):
            try:
                parsed.append(None if value is None else parse(value))
            except (ValueError, RecursionError) as reason:
                self.add(row, column, value, reason)
                parsed.append(None)
        return parsed
