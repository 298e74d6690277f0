"""Columns of a record batch as messages need them: Python values, and their JSON and repr as text."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

import pyarrow as pa

from celery_ext.bulk.argsrepr import texts_of
from kombu_delayq.message.fields import text_to_json, to_json
from kombu_delayq.message.times import EPOCH

#: Raised for values that Python does not have: times before the year 1 or after 9999, maps with a key twice, and texts
#: that are not UUIDs.
_NO_PYTHON_VALUE = (OverflowError, KeyError, ValueError)


class Values:
    """The values of a column in one batch.

    Args:
        array: The column.
        as_uuid: Whether its texts or bytes are UUIDs.
        on_error: Called with row number, value and reason for each value that Python does not have. Without it such a
            value raises.
    """

    def __init__(
        self, array: pa.Array, *, as_uuid: bool = False, on_error: Callable[[int, Any, object], None] | None = None
    ) -> None:
        self._array = array
        self._type = array.type
        self._as_uuid = as_uuid
        self._on_error = on_error

    @cached_property
    def python(self) -> list[Any]:
        """Python values. Times are in UTC, maps and structs are dicts; a value that Python does not have is text."""
        try:
            return self._converted(self._array)
        except _NO_PYTHON_VALUE:
            if self._on_error is None:
                raise
            return [self._convert_row(row, self._on_error) for row in range(len(self._array))]

    @cached_property
    def json(self) -> list[str]:
        """JSON texts, as Celery's serializer ``json`` writes the Python values."""
        if self.is_text:
            return ["null" if text is None else text_to_json(text) for text in self.python]
        if pa.types.is_integer(self._type):
            return ["null" if number is None else str(number) for number in self.python]
        return list(map(to_json, self.python))

    @cached_property
    def reprs(self) -> list[str] | None:
        """Texts as in ``argsrepr`` and ``kwargsrepr``; None for values of which Celery may cut off parts."""
        return texts_of(self.python)

    @property
    def nulls(self) -> set[int]:
        """Numbers of the rows without a value."""
        if not self._array.null_count:
            return set()
        return {row for row, is_null in enumerate(self._array.is_null().to_pylist()) if is_null}

    @property
    def is_text(self) -> bool:
        """Whether the values are texts."""
        return not self._as_uuid and (pa.types.is_string(self._type) or pa.types.is_large_string(self._type))

    def _convert_row(self, row: int, on_error: Callable[[int, Any, object], None]) -> Any:
        array = self._array.slice(row, 1)
        try:
            return self._converted(array)[0]
        except _NO_PYTHON_VALUE as reason:
            if self._as_uuid:
                value = str(array[0])
            else:
                value = " ".join(str(array).split()).removeprefix("[ ").removesuffix(" ]")
            on_error(row, value, reason.args[0])
            return value

    def _converted(self, array: pa.Array) -> list[Any]:
        if pa.types.is_timestamp(self._type):
            epoch = EPOCH if self._type.tz is not None else EPOCH.replace(tzinfo=None)
            return [None if us is None else epoch + timedelta(microseconds=us) for us in microseconds(array)]
        values: list[Any] = array.to_pylist(maps_as_pydicts="strict")
        if self._as_uuid:
            return [None if value is None else _uuid(value) for value in values]
        return _in_utc(values) if pa.types.is_nested(self._type) and _has_times(self._type) else values


def microseconds(array: pa.Array) -> list[int | None]:
    """Returns times as µs since the epoch. Times without a zone count as UTC."""
    if pa.types.is_null(array.type):
        return [None] * len(array)
    unit = pa.timestamp("us", tz=array.type.tz)
    times_us: list[int | None] = array.cast(unit).cast(pa.int64()).to_pylist()
    return times_us


def _uuid(value: str | bytes) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_times(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind))


def _in_utc(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_utc(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_in_utc(item) for item in value]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
