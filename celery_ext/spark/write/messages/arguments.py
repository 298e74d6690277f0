"""The arguments of tasks: their JSON, how Celery shows them, and the body of the message that has them."""

import json
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from celery.utils.saferepr import saferepr
from kombu import compression, serialization
from kombu.exceptions import EncodeError

from celery_ext.bulk.encoding import text_to_json, to_json
from celery_ext.spark.write.messages.row_errors import RowErrors
from celery_ext.spark.write.messages.values import Values

#: What a body has beside the arguments. Source: celery.app.amqp.AMQP.as_task_v2
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_EMBED_JSON = to_json(EMBED)
#: Most characters of ``argsrepr`` and ``kwargsrepr``. Source: celery.app.amqp.AMQP.argsrepr_maxsize
REPR_LENGTH = 1024


class Arguments:
    """The arguments of one batch.

    Args:
        columns: By name, those that are arguments, and ``args`` and ``kwargs`` where they are columns.
        names: Of those that are keyword arguments.
        count: Number of rows.
        faults: Takes what is wrong.
        levels: To which depth Celery shows arguments.
    """

    def __init__(
        self, columns: dict[str, Values], names: Sequence[str], count: int, faults: RowErrors, levels: int
    ) -> None:
        self._columns = columns
        self._names = names
        self._count = count
        self._faults = faults
        self._levels = levels
        self._args = self._parsed("args", list, faults)
        self._kwargs = self._parsed("kwargs", dict, faults)

    def bodies(self, serializer: str, compressed_by: str | None) -> list[str]:
        """Returns the bodies as the messages have them: serialized, in base64, as JSON text."""
        raw = self._serialized(serializer)
        if compressed_by:
            raw = (compression.compress(each, compressed_by)[0] for each in raw)
        return [f'"{b2a_base64(each, newline=False).decode()}"' for each in raw]

    def args_repr(self) -> Iterable[str]:
        """Returns ``argsrepr`` of each row, as JSON text."""
        if self._args is None:
            return repeat('"()"')
        return [self._shown(each or ()) for each in self._args]

    def kwargs_repr(self) -> Iterable[str]:
        """Returns ``kwargsrepr`` of each row, as JSON text."""
        if self._kwargs is not None:
            return [self._shown(each or {}) for each in self._kwargs]
        if not self._names:
            return repeat('"{}"')
        parts = [self._columns[name].repr for name in self._names]
        if self._levels < 2 or any(part is None for part in parts):
            return list(map(self._shown, self.kwargs()))
        return self._joined_repr([part for part in parts if part is not None])

    def kwargs(self) -> Iterator[dict[str, Any]]:
        """Yields the keyword arguments of each row."""
        if self._kwargs is not None:
            yield from (each or {} for each in self._kwargs)
        elif self._names:
            rows = zip(*(self._columns[name].python for name in self._names), strict=True)
            yield from (dict(zip(self._names, row, strict=True)) for row in rows)
        else:
            yield from repeat({}, self._count)

    def _serialized(self, serializer: str) -> Iterable[bytes]:
        if serializer == "json":
            with suppress(RecursionError):
                return self._as_json()
        rows = zip(self._args or repeat(None, self._count), self.kwargs(), strict=False)
        return [self._one(at, (tuple(args or ()), kwargs), serializer) for at, (args, kwargs) in enumerate(rows)]

    def _one(self, at: int, arguments: tuple[Any, ...], serializer: str) -> bytes:
        try:
            raw = serialization.dumps((*arguments, EMBED), serializer)[2]
        except EncodeError as error:
            self._faults.add(at, "", arguments, f"cannot be written as {serializer}: {error}")
            return b""
        return raw.encode() if isinstance(raw, str) else bytes(raw)

    def _as_json(self) -> list[bytes]:
        if self._args is None:
            return [f"[[], {named}, {_EMBED_JSON}]".encode() for named in self._kwargs_json()]
        rows = zip(self._args, self._kwargs_json(), strict=True)
        return [f"[{to_json(args or [])}, {named}, {_EMBED_JSON}]".encode() for args, named in rows]

    def _kwargs_json(self) -> Iterator[str]:
        if self._kwargs is not None or not self._names:
            return map(to_json, self.kwargs())
        names = (text_to_json(name).replace("%", "%%") for name in self._names)
        form = "{" + ", ".join(f"{name}: %s" for name in names) + "}"
        return map(form.__mod__, zip(*(self._columns[name].json for name in self._names), strict=True))

    def _joined_repr(self, parts: list[list[str]]) -> list[str]:
        names = ("'" + name.replace("'", "\\'").replace("%", "%%") + "'" for name in self._names)
        form = "{" + ", ".join(f"{name}: %s" for name in names) + "}"
        shown = list(map(form.__mod__, zip(*parts, strict=True)))
        if max(map(len, shown), default=0) < REPR_LENGTH:
            return list(map(text_to_json, shown))
        # What is longer is cut off, in a way of Celery's own.
        return [
            text_to_json(each) if len(each) < REPR_LENGTH else self._shown(kwargs)
            for each, kwargs in zip(shown, self.kwargs(), strict=True)
        ]

    def _shown(self, arguments: Any) -> str:
        return text_to_json(saferepr(arguments, REPR_LENGTH, self._levels))

    def _parsed(self, name: str, kind: type, faults: RowErrors) -> list[Any] | None:
        """Returns a column of arguments as Python values, parsed where it is JSON text."""
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

        return faults.parse(name, column.python, parse)
