"""Columns of a record batch as what goes into messages: Python values, and their JSON and repr as text."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

import pyarrow as pa
from celery.utils.saferepr import saferepr

from celery_ext.bulk.encoding import text_to_json, to_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What is raised where Python has no value: for times before the year 1 or after 9999, maps with a key twice, and texts
#: that are no UUID.
_NO_VALUE = (OverflowError, KeyError, ValueError)


class Values:
    """The values of a column in one batch.

    Args:
        array: The column.
        as_uuid: Whether its texts or bytes are UUIDs.
        wrong: Takes the number of a row, its value and the reason, when Python has no such value; without it the
            column cannot have one.
    """

    def __init__(
        self, array: pa.Array, *, as_uuid: bool = False, wrong: Callable[[int, Any, object], None] | None = None
    ) -> None:
        self._array = array
        self._type = array.type
        self._as_uuid = as_uuid
        self._wrong = wrong

    @cached_property
    def python(self) -> list[Any]:
        """As Python values: times in UTC, maps and structs as dicts; a wrong value as text."""
        try:
            return self._converted(self._array)
        except _NO_VALUE:
            if self._wrong is None:
                raise
            return [self._one(at, self._wrong) for at in range(len(self._array))]

    def _one(self, at: int, wrong: Callable[[int, Any, object], None]) -> Any:
        alone = self._array.slice(at, 1)
        try:
            return self._converted(alone)[0]
        except _NO_VALUE as reason:
            value = (
                str(alone[0]) if self._as_uuid else " ".join(str(alone).split()).removeprefix("[ ").removesuffix(" ]")
            )
            wrong(at, value, reason.args[0])
            return value

    def _converted(self, array: pa.Array) -> list[Any]:
        if pa.types.is_timestamp(self._type):
            zone = UTC if self._type.tz is not None else None
            start = EPOCH if zone else EPOCH.replace(tzinfo=None)
            return [None if us is None else start + timedelta(microseconds=us) for us in microseconds(array)]
        found: list[Any] = array.to_pylist(maps_as_pydicts="strict")
        if self._as_uuid:
            return [None if each is None else _uuid(each) for each in found]
        return _in_utc(found) if pa.types.is_nested(self._type) and _has_times(self._type) else found

    @cached_property
    def json(self) -> list[str]:
        """As JSON, which is what Celery's serializer ``json`` makes of the Python values."""
        if self.is_text:
            return ["null" if each is None else text_to_json(each) for each in self.python]
        if pa.types.is_integer(self._type):
            return ["null" if each is None else str(each) for each in self.python]
        return list(map(to_json, self.python))

    @cached_property
    def repr(self) -> list[str] | None:
        """As Celery shows them in ``argsrepr`` and ``kwargsrepr``; None for what may be cut off on its own.

        Source: celery.utils.saferepr, whose result of a whole is made of these, as long as it is not too long.
        """
        if self.is_text:
            return ["None" if each is None else "'" + each.replace("'", "\\'") + "'" for each in self.python]
        if pa.types.is_integer(self._type):
            return [str(each) for each in self.python]
        return None if pa.types.is_nested(self._type) else list(map(saferepr, self.python))

    @property
    def is_text(self) -> bool:
        """Whether the values are texts."""
        return not self._as_uuid and (pa.types.is_string(self._type) or pa.types.is_large_string(self._type))


def microseconds(array: pa.Array) -> list[int | None]:
    """Returns times as µs since the epoch; those without a zone count as UTC."""
    if pa.types.is_null(array.type):
        return [None] * len(array)
    unit = pa.timestamp("us", tz=array.type.tz)
    found: list[int | None] = array.cast(unit).cast(pa.int64()).to_pylist()
    return found


def _uuid(given: str | bytes) -> UUID:
    return UUID(bytes=given) if isinstance(given, bytes) else UUID(given)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_times(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind))


def _in_utc(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_utc(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_in_utc(each) for each in value]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
