"""What the rows of a batch say of their tasks beside their arguments: by columns, else by options."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any

from celery_ext.bulk.encoding import to_json
from celery_ext.spark.option_parsers import check_headers
from celery_ext.spark.options import PRIORITIES, WriteOptions
from celery_ext.spark.write.messages.row_errors import RowErrors
from celery_ext.spark.write.messages.values import Values


class TaskFields:
    """The columns of a batch that say something of its tasks.

    Args:
        values: All columns, by name.
        options: Of the job; each stands for rows in which the column of its name is missing or NULL.
        count: Number of rows.
        faults: Takes what is wrong.
    """

    def __init__(self, values: Mapping[str, Values], options: WriteOptions, count: int, faults: RowErrors) -> None:
        self._values = values
        self._options = options
        self._count = count
        self._faults = faults

    def is_constant(self, *names: str) -> bool:
        """Whether all rows say the same of these."""
        return not self._values.keys() & set(names)

    def of(self, name: str) -> list[Any]:
        """Returns what each row says; None where it says nothing, or something wrong."""
        default = getattr(self._options, name)
        if name not in self._values:
            return [default] * self._count
        found = self._faults.parse(name, self._values[name].python, _PARSERS[name])
        return [default if each is None else each for each in found]

    def json(self, name: str) -> Iterable[str]:
        """Returns the texts of a column as JSON, ``null`` where there is none."""
        return self._values[name].json if name in self._values else repeat("null")

    def task_ids(self) -> list[str | None]:
        """Returns the ids that rows bring along."""
        return self._values["task_id"].python if "task_id" in self._values else [None] * self._count

    def cancels(self) -> set[int]:
        """Returns which rows cancel a task instead of enqueuing one."""
        found = set()
        for at, op in enumerate(self._values["op"].python if "op" in self._values else ()):
            if op == "cancel":
                found.add(at)
            elif op not in (None, "enqueue"):
                self._faults.add(at, "op", op, "is neither enqueue nor cancel")
        return found

    def headers(self) -> Iterable[str]:
        """Returns further headers as the JSON text that follows Celery's own."""
        default = _headers(self._options.headers or {})
        if "headers" not in self._values:
            return repeat(default)
        found = self._faults.parse("headers", self._values["headers"].python, _headers)
        return [default if each is None else each for each in found]


def _named(given: str) -> str:
    if not given.strip():
        raise ValueError("is empty")
    return given


def _priority(given: int) -> int:
    if given not in PRIORITIES:
        raise ValueError("is not a priority from 0 to 9")
    return given


def _limit(given: float) -> float:
    if not math.isfinite(given) or given <= 0:
        raise ValueError("is no limit of time in s")
    return given


def _headers(given: Any) -> str:
    found = check_headers(json.loads(given) if isinstance(given, str) else given)
    return f", {to_json(found)[1:-1]}" if found else ""


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "task": _named,
    "queue": _named,
    "priority": _priority,
    "time_limit": _limit,
    "soft_time_limit": _limit,
    "ignore_result": bool,
}
