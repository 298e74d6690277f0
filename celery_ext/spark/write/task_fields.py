"""The fields of tasks other than their arguments, from the columns of a batch, else from options."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.limits import LimitDeclaration, add_key
from celery_ext.publish import headers_json
from celery_ext.spark.option_parsers import chain_text, check_headers, limit_key
from celery_ext.spark.options import PRIORITIES, WriteOptions
from celery_ext.spark.write.digests import column_of, digests_of, uuids_of
from celery_ext.spark.write.texts import Pieces, column
from kombu_delayq.errors import InvalidLimit
from kombu_delayq.message import text_to_json

if TYPE_CHECKING:
    from celery_ext.spark.write.values import BatchRows


class TaskFields:
    """The fields of the tasks of one batch.

    Args:
        rows: The rows, which get the errors of their fields.
        options: Options of the job. Each is the default for rows in which the column of its name is missing or NULL.
    """

    def __init__(self, rows: BatchRows, options: WriteOptions) -> None:
        self.rows = rows
        self._values, self._count = rows.columns, rows.count
        self._options = options

    def is_constant(self, *names: str) -> bool:
        """Whether these fields are the same in all rows, because they have no column."""
        return not self._values.keys() & set(names)

    def of(self, name: str) -> list[Any]:
        """Returns a field of each row; None where it is missing or wrong."""
        default = getattr(self._options, name)
        if name not in self._values:
            return [default] * self._count
        parsed = self.rows.parse(name, self._values[name].python, _PARSERS[name])
        return [default if value is None else value for value in parsed]

    def json(self, name: str) -> Pieces:
        """Returns a column as JSON texts; ``null`` for each row where it is missing."""
        return [self._values[name].json if name in self._values else "null"]

    def headers(
        self, limits: Mapping[str, LimitDeclaration], arguments: Callable[[], Iterable[tuple[Any, Any]]]
    ) -> Pieces:
        """Returns further headers of each row with its key, as the JSON text that follows Celery's own headers.

        Args:
            limits: What tasks declare of their limits, by name of the task.
            arguments: Returns positional and keyword arguments of each row.
        """
        has_limit = not self.is_constant("limit") or self._options.limit is not None
        has_limit = has_limit or (bool(limits) and not limits.keys().isdisjoint(self.tasks))
        if not has_limit and "headers" not in self._values:
            return [headers_json(self._options.headers)]
        given = self._headers()
        return [column(map(headers_json, self._with_keys(given, limits, arguments()) if has_limit else given))]

    def _headers(self) -> list[Any]:
        default = self._options.headers
        if "headers" not in self._values:
            return [default] * self._count
        parsed = self.rows.parse("headers", self._values["headers"].python, _headers)
        return [default if headers is None else headers for headers in parsed]

    def _with_keys(
        self,
        headers: Iterable[Any],
        limits: Mapping[str, LimitDeclaration],
        arguments: Iterable[tuple[Any, Any]],
    ) -> Iterator[Any]:
        for row, (own, task, limit, given) in enumerate(
            zip(headers, self.tasks, self.of("limit"), arguments, strict=True)
        ):
            options = {"headers": own}
            if row not in self.cancels:
                try:
                    add_key(limits.get(task or ""), limit, *given, options)
                except InvalidLimit as error:
                    self.rows.add_error(row, given, error)
            yield options["headers"]

    @cached_property
    def tasks(self) -> list[str | None]:
        """Names of the tasks; None where a row names none."""
        return self.of("task")

    @cached_property
    def own_ids(self) -> list[str | None]:
        """Ids in the column ``task_id``; None where it is missing or NULL."""
        return self._values["task_id"].python if "task_id" in self._values else [None] * self._count

    @cached_property
    def cancels(self) -> set[int]:
        """Numbers of the rows that cancel a task instead of enqueuing one."""
        rows = set()
        for row, op in enumerate(self._values["op"].python if "op" in self._values else ()):
            if op == "cancel":
                rows.add(row)
            elif op not in (None, "enqueue"):
                self.rows.add_error(row, op, "is neither enqueue nor cancel", "op")
        return rows

    def digests(self, id_columns: Sequence[str]) -> pa.Array:
        """Returns what the ids of the tasks are made from: the row's own id, else columns, else the whole row.

        Args:
            id_columns: Names of the columns; empty for the whole row.

        Returns:
            The SHA-256 of each row.
        """
        made = self._made_of(id_columns or sorted(self._values))
        nameless = self._nameless(id_columns)
        if nameless:  # bad rows, which their dead letters tell from each other
            whole = self._made_of(sorted(self._values)).to_pylist()
            made = column_of(whole[row] if row in nameless else one for row, one in enumerate(made.to_pylist()))
        if self.is_constant("task_id"):
            return made
        rows = zip(self.own_ids, made.to_pylist(), strict=True)
        return column_of(sha256(own.encode()).digest() if own else one for own, one in rows)

    def ids(self, digests: pa.Array) -> pa.StringArray:
        """Returns the task ids: the row's own id, else the one made from its digest."""
        made = uuids_of(digests)
        if self.is_constant("task_id"):
            return made
        return pc.coalesce(column(own or None for own in self.own_ids), made)

    def check(self, id_columns: Sequence[str]) -> None:
        """Adds an error for each row without a task, unless it cancels one by its id, and for each without an id.

        Args:
            id_columns: As of ``digests``.
        """
        cancels = self.cancels
        for row, task in enumerate(self.tasks if not self.is_constant("task") or self._options.task is None else ()):
            if task is None and not (row in cancels and self.own_ids[row]):
                self.rows.add_error(row, None, "names no task", "task")
        if not self.is_constant("task_id"):
            self.rows.parse("task_id", self.own_ids, _not_empty)
        for row in self._nameless(id_columns):
            reason = "is NULL, so that the row has no id of its own"
            self.rows.add_error(row, None, reason, " and ".join(id_columns))

    def _made_of(self, names: Sequence[str]) -> pa.Array:
        """Returns digests of the tasks and the values of columns, as ``task_ids.digest_of`` makes them."""
        is_same = self.is_constant("task")
        task = text_to_json(self._options.task or "") if is_same else column(text_to_json(t or "") for t in self.tasks)
        values = [piece for name in names for piece in (", ", self._values[name].json)]
        return digests_of(["[", task, *(values or [", "]), "]"], self._count)

    def _nameless(self, id_columns: Sequence[str]) -> set[int]:
        """Returns the numbers of the rows whose id would be made from NULLs alone, and so be that of all such rows."""
        if not id_columns:
            return set()
        rows = set.intersection(*(self._values[name].nulls for name in id_columns))
        return {row for row in rows if not self.own_ids[row]} if rows else rows


def _not_empty(given: str) -> str:
    if not given:
        raise ValueError("is empty")
    return given


def _name(given: str) -> str:
    _not_empty(given.strip())
    return given


def _priority(given: int) -> int:
    if given not in PRIORITIES:
        raise ValueError("is not a priority from 0 to 9")
    return given


def _time_limit(given: float) -> float:
    if not math.isfinite(given) or given <= 0:
        raise ValueError("is not a time limit in s")
    return given


def _headers(given: Any) -> dict[str, Any]:
    return check_headers(json.loads(given) if isinstance(given, str) else given)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "task": _name,
    "queue": _name,
    "priority": _priority,
    "time_limit": _time_limit,
    "soft_time_limit": _time_limit,
    "ignore_result": bool,
    "delay_chain": chain_text,
    "limit": limit_key,
}
