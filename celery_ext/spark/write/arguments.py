"""The arguments of the tasks of a batch: bodies of messages, and the texts by which Celery shows arguments."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from kombu import compression, serialization
from kombu.exceptions import EncodeError

from celery_ext.publish import body_json, saferepr, texts_of
from celery_ext.spark.write.texts import Pieces, column, in_base64, joined, json_in_json
from kombu_delayq.message import text_to_json, to_json

if TYPE_CHECKING:
    from celery_ext.publish import Template
    from celery_ext.spark.write.values import BatchRows

#: Third element of a body, after the arguments. Source: celery.app.amqp.AMQP.as_task_v2
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_EMBED_JSON, _NO_EMBED_JSON = to_json(EMBED), "{}"
#: Most characters of ``argsrepr`` and ``kwargsrepr``. Source: celery.app.amqp.AMQP.argsrepr_maxsize
REPR_LENGTH = 1024


class Arguments:
    """The arguments of one batch.

    Args:
        rows: The rows, which get the errors of their arguments.
        names: Names of the keyword arguments that are columns.
        repr_levels: Depth to which Celery shows arguments.
    """

    def __init__(self, rows: BatchRows, names: Sequence[str], repr_levels: int) -> None:
        self._rows = rows
        self._columns, self._count = rows.columns, rows.count
        self._names = names
        self._repr_levels = repr_levels
        self._args = self._parsed("args", list)
        self._kwargs = self._parsed("kwargs", dict)

    def bodies(self, template: Template) -> Pieces:
        """Returns the bodies as they stand in messages of a template: serialized, compressed, and encoded as JSON."""
        if template.serializer == "json" and not template.compression:
            with suppress(RecursionError):
                raw = self._as_json(_NO_EMBED_JSON if template.is_without_nulls else _EMBED_JSON)
                return ['"', json_in_json(raw) if template.is_text else in_base64(raw), '"']
        made: Iterable[bytes] = [
            self._serialize(row, (tuple(args or ()), kwargs), template.serializer)
            for row, (args, kwargs) in enumerate(self.pairs())
        ]
        if template.compression:
            made = (compression.compress(body, template.compression)[0] for body in made)
        return [column(body_json(body, template) for body in made)]

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Returns positional and keyword arguments of each row."""
        return zip(self._args or repeat(None, self._count), self._kwargs_of_rows(), strict=False)

    def args_repr(self) -> Pieces:
        """Returns ``argsrepr`` of each row, as JSON text."""
        return ['"()"'] if self._args is None else [column(self._repr(args or ()) for args in self._args)]

    def kwargs_repr(self) -> Pieces:
        """Returns ``kwargsrepr`` of each row, as JSON text."""
        if self._kwargs is None and not self._names:
            return ['"{}"']
        columns = [self._columns[name].reprs for name in self._names]
        if self._kwargs is not None or self._repr_levels < 2 or any(each is None for each in columns):
            return [column(map(self._repr, self._kwargs_of_rows()))]
        texts = joined(_dict([text_to_json(name)[1:-1] for name in texts_of(self._names) or ()], columns), self._count)
        if pc.max(pc.binary_length(texts)).as_py() < REPR_LENGTH:
            return ['"', texts, '"']
        # Celery itself cuts off a longer text.
        rows = zip(texts.to_pylist(), self._kwargs_of_rows(), strict=True)
        return [column(f'"{text}"' if len(text) < REPR_LENGTH else self._repr(kwargs) for text, kwargs in rows)]

    def _kwargs_of_rows(self) -> Iterator[dict[str, Any]]:
        if self._kwargs is not None:
            yield from (kwargs or {} for kwargs in self._kwargs)
        elif self._names:
            rows = zip(*(self._columns[name].python for name in self._names), strict=True)
            yield from (dict(zip(self._names, row, strict=True)) for row in rows)
        else:
            yield from repeat({}, self._count)

    def _serialize(self, row: int, arguments: tuple[Any, ...], serializer: str) -> bytes:
        try:
            raw = serialization.dumps((*arguments, EMBED), serializer)[2]
        except EncodeError as error:
            self._rows.add_error(row, arguments, f"cannot be written as {serializer}: {error}")
            return b""
        return raw.encode() if isinstance(raw, str) else bytes(raw)

    def _as_json(self, embed: str) -> pa.StringArray:
        args = "[]" if self._args is None else column(to_json(args or []) for args in self._args)
        return joined(["[", args, ", ", *self._kwargs_json(), f", {embed}]"], self._count)

    def _kwargs_json(self) -> Pieces:
        if self._kwargs is not None:
            return [column(map(to_json, self._kwargs_of_rows()))]
        return _dict(map(text_to_json, self._names), [self._columns[name].json for name in self._names])

    def _repr(self, arguments: Any) -> str:
        return text_to_json(saferepr(arguments, REPR_LENGTH, self._repr_levels))

    def _parsed(self, name: str, kind: type) -> list[Any] | None:
        """Returns a column of arguments as Python values, parsed if it is JSON text; None without such a column."""
        column = self._columns.get(name)
        if column is None:
            return None
        if not column.is_text:
            return column.python

        def parse(text: str) -> Any:
            found = json.loads(text)
            if not isinstance(found, kind):
                raise ValueError(f"is not a JSON {'array' if kind is list else 'object'}")
            return found

        return self._rows.parse(name, column.python, parse)


def _dict(names: Iterable[str], columns: Iterable[Any]) -> Pieces:
    """Returns the text of a dict in each row. names: Texts of the keys, with quotes; columns: those of the values."""
    items = [piece for name, each in zip(names, columns, strict=True) for piece in (", ", name, ": ", each)]
    return ["{", *items[1:], "}"]
