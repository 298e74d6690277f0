"""Columns of a record batch as messages need them: Python values, their JSON and repr as text, and what is wrong."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.publish import texts_of
from celery_ext.spark.write.columns import meant_by
from celery_ext.spark.write.texts import Pieces, column, in_json, is_plain, joined
from kombu_delayq.errors import quoted
from kombu_delayq.message import EPOCH, to_json, us_of


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


class BatchRows:
    """The rows of a batch.

    Args:
        batch: The batch.
        uuid_columns: Names of the columns whose values are UUIDs.

    Attributes:
        count: How many they are.
        columns: Their columns by name, those that are reserved in lower case.
        errors: Why rows make no task, at most one error a row, by the number of the row.
    """

    def __init__(self, batch: pa.RecordBatch, uuid_columns: Container[str] = ()) -> None:
        self.count: int = batch.num_rows
        self.errors: dict[int, RowError] = {}
        self.columns = {
            name: Values(array, as_uuid=name in uuid_columns, on_error=partial(self.add_error, column=name))
            for name, array in zip(map(meant_by, batch.schema.names), batch.columns, strict=True)
        }

    def add_error(self, row: int, value: Any, reason: object, column: str = "") -> None:
        """Adds an error, unless the row has one already."""
        self.errors.setdefault(row, RowError(column, value, str(reason)))

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
                self.add_error(row, value, reason, column)
                parsed.append(None)
        return parsed


#: Raised for values that Python does not have: times before the year 1 or after 9999, maps with a key twice, and texts
#: that are not UUIDs.
_NO_PYTHON_VALUE = (OverflowError, KeyError, ValueError)

#: Days and µs since the epoch that a date and a datetime can have.
_DAYS = (date.min - EPOCH.date()).days, (date.max - EPOCH.date()).days
_MICROSECONDS = us_of(datetime.min), us_of(datetime.max)
#: Added to any time in µs it is positive, and ends with the same three digits.
_BEFORE_ALL = 10**17
#: Dates and times in ISO 8601, with a group for each number.
_DATE, _TIME = r"0*(\d+)-0?(\d+)-0?(\d+)", r"0?(\d+):0?(\d+):0?(\d+)(?:\.0*(\d+))?"
#: JSON of values whose ``repr`` is another text.
_JSON_OF_REPR = {
    "None": "null",
    "True": "true",
    "False": "false",
    "nan": "NaN",
    "inf": "Infinity",
    "-inf": "-Infinity",
}


class Values:
    """The values of a column in one batch.

    Args:
        array: The column.
        as_uuid: Whether its texts or bytes are UUIDs.
        on_error: Called with row number, value and reason for each value that Python does not have. Without it such a
            value raises.

    Attributes:
        array: The column.
    """

    def __init__(
        self, array: pa.Array, *, as_uuid: bool = False, on_error: Callable[[int, Any, object], None] | None = None
    ) -> None:
        self.array = array.cast(pa.string()) if pa.types.is_large_string(array.type) else array
        self._type = self.array.type
        self._as_uuid = as_uuid
        self._on_error = on_error

    @cached_property
    def python(self) -> list[Any]:
        """Python values. Times are in UTC, maps and structs are dicts; a value that Python does not have is text."""
        try:
            return self._converted(self._readable)
        except _NO_PYTHON_VALUE:
            if self._on_error is None:
                raise
            return [self._convert_row(row, self._on_error) for row in range(len(self.array))]

    @cached_property
    def json(self) -> pa.StringArray:
        """JSON texts, as Celery's serializer ``json`` writes the Python values."""
        if self.is_text:
            return self._without_nulls(['"', self._in_json, '"'], "null")
        if pa.types.is_floating(self._type):
            return column(_JSON_OF_REPR.get(text, text) for text in texts_of(self.python) or ())
        if pa.types.is_boolean(self._type):
            return self._without_nulls([pc.if_else(self.array, "true", "false")], "null")
        if self._written is None:
            return column(map(to_json, self.python))
        before, after = _around(self._type)
        return self._without_nulls([before, self._written, after], "null")

    @cached_property
    def reprs(self) -> pa.StringArray | None:
        """Texts of values in ``argsrepr`` and ``kwargsrepr``, as they stand in the JSON of these.

        None for values of which Celery may cut off parts.
        """
        if self.is_text:
            texts = pc.replace_substring(self._in_json, "'", "\\\\'")  # escaped once for repr, and once for JSON
            return self._without_nulls(["'", texts, "'"], "None")
        if pa.types.is_boolean(self._type):
            return self._without_nulls([pc.if_else(self.array, "True", "False")], "None")
        if self._written is not None:
            return self._without_nulls([_reprs(self._written, self._type)], "None")
        texts = texts_of(self.python)
        return None if texts is None else in_json(column(texts))

    def _without_nulls(self, pieces: Pieces, null: str) -> pa.StringArray:
        found = joined(pieces, len(self.array))
        return pc.coalesce(found, null) if found.null_count else found

    @cached_property
    def _in_json(self) -> pa.StringArray:
        """Texts as they stand in JSON, without the quotes around them."""
        return self.array if is_plain(self.array) else in_json(column(self.python))

    @property
    def nulls(self) -> set[int]:
        """Numbers of the rows without a value."""
        if not self.array.null_count:
            return set()
        return {row for row, is_null in enumerate(self.array.is_null().to_pylist()) if is_null}

    @property
    def is_text(self) -> bool:
        """Whether the values are texts."""
        return not self._as_uuid and bool(pa.types.is_string(self._type))

    @cached_property
    def _written(self) -> pa.Array | None:
        """Numbers, dates and times as texts, as ``str`` or ``isoformat`` writes them; None where Python has to.

        Arrow takes a fraction of the time of Python. It writes doubles in another way, which would change ids.
        """
        kind, array = self._type, self.array
        if self._as_uuid:
            return None
        if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
            return array.cast(pa.string())
        if pa.types.is_date32(kind) and _is_within(array.cast(pa.int32()), _DAYS):
            return array.cast(pa.string())
        if _is_timestamp_us(kind) and _is_within(array.cast(pa.int64()), _MICROSECONDS):
            return iso_texts(array.cast(pa.int64()), has_zone=kind.tz is not None)
        return None

    @cached_property
    def _readable(self) -> pa.Array:
        """The column, with nested times in UTC: Spark takes zones that Python does not have, such as PST."""
        return self.array.cast(_type_in_utc(self._type)) if self._has_nested_times else self.array

    @property
    def _has_nested_times(self) -> bool:
        return bool(pa.types.is_nested(self._type)) and _has_times(self._type)

    def _convert_row(self, row: int, on_error: Callable[[int, Any, object], None]) -> Any:
        array = self._readable.slice(row, 1)
        try:
            return self._converted(array)[0]
        except _NO_PYTHON_VALUE as reason:
            if self._as_uuid:
                value = str(array[0])
            else:
                value = " ".join(str(array).split()).removeprefix("[ ").removesuffix(" ]")
            on_error(row, value, "is not valid UTF-8" if isinstance(reason, UnicodeDecodeError) else reason.args[0])
            return value

    def _converted(self, array: pa.Array) -> list[Any]:
        if pa.types.is_timestamp(self._type):
            epoch = EPOCH if self._type.tz is not None else EPOCH.replace(tzinfo=None)
            times_us = microseconds(array).to_pylist()
            return [None if us is None else epoch + timedelta(microseconds=us) for us in times_us]
        values: list[Any] = array.to_pylist(maps_as_pydicts="strict")
        if self._as_uuid:
            return [None if value is None else _uuid(value) for value in values]
        return _in_utc(values) if self._has_nested_times else values


def iso_texts(us: pa.Array, *, has_zone: bool = True) -> pa.Array:
    """Returns times in ISO 8601, as ``datetime.isoformat`` writes them.

    Args:
        us: Times that a datetime can have, in µs since the epoch.
        has_zone: Whether they are in UTC; otherwise they have no zone.
    """
    texts = pc.replace_substring(us.cast(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1)
    texts = pc.replace_substring(texts, ".000000", "")
    return pc.binary_join_element_wise(texts, "+00:00", "") if has_zone else texts


def ms_texts(us: pa.Array) -> pa.StringArray:
    """Returns what ``ms_text`` makes of times in µs; an empty text for NULL."""
    after = pc.add(us, _BEFORE_ALL)  # Arrow rounds towards 0, ``ms_text`` down
    ms = pc.divide(after, 1000)
    rest = pc.subtract(after, pc.multiply(ms, 1000))
    whole = pc.subtract(ms, _BEFORE_ALL // 1000).cast(pa.string())
    texts = joined([whole, ".", pc.utf8_slice_codeunits(pc.add(rest, 1000).cast(pa.string()), 1)], len(us))
    return pc.coalesce(texts, "") if texts.null_count else texts


def microseconds(array: pa.Array) -> pa.Array:
    """Returns times as µs since the epoch. Times without a zone count as UTC."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.int64())
    return array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64())


def _is_timestamp_us(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"


def _is_within(numbers: pa.Array, bounds: tuple[int, int]) -> bool:
    found = pc.min_max(numbers).as_py()
    return found["min"] is None or (bounds[0] <= found["min"] and found["max"] <= bounds[1])


def _around(kind: pa.DataType) -> tuple[str, str]:
    """Returns what JSON has before and after the text of a value, by an example."""
    if pa.types.is_integer(kind):
        return "", ""
    moment = EPOCH if getattr(kind, "tz", None) is not None else EPOCH.replace(tzinfo=None)
    example = Decimal(1) if pa.types.is_decimal(kind) else moment.date() if pa.types.is_date(kind) else moment
    before, _, after = to_json(example).partition(str(example).replace(" ", "T"))
    return before, after


def _reprs(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns what ``repr`` makes of values. texts: As in ``Values._written``."""
    if pa.types.is_integer(kind):
        return texts
    if pa.types.is_decimal(kind):
        return pc.binary_join_element_wise("Decimal('", texts, "')", "")
    if pa.types.is_date(kind):
        return pc.replace_substring_regex(texts, rf"^{_DATE}$", r"datetime.date(\1, \2, \3)")
    end = ")" if kind.tz is None else ", tzinfo=datetime.timezone.utc)"
    fields = rf"datetime.datetime(\1, \2, \3, \4, \5, \6, \7{end}"
    found = pc.replace_substring_regex(texts, rf"^{_DATE}T{_TIME}(?:\+00:00)?$", fields)
    # A missing fraction is left out, and so are seconds that are 0 before it.
    return pc.replace_substring(pc.replace_substring(found, f", {end}", end), f", 0{end}", end)


def _uuid(value: str | bytes) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_times(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind))


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _field_in_utc(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field_in_utc(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_nested(kind):
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return make(_field_in_utc(kind.value_field))
    return kind


def _field_in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_type_in_utc(field.type))


def _in_utc(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_utc(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_in_utc(item) for item in value]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
