"""What is sought in the arguments of tasks: a text anywhere, or a value at a path."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.errors import quoted

#: Most parts of a path into the arguments.
DEEPEST = 16
_PATH = re.compile(r"(args|kwargs)((?:\.[^=]*)?)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class _Text:
    """A text in the arguments, as ``_folded`` leaves it."""

    text: str

    def is_in(self, task: DelayedTask) -> bool:
        # The texts in the headers may be cut short, or be something else that the publisher prefers to show.
        return any(self.text in _folded(shown) for shown in (task.argsrepr, task.kwargsrepr)) or any(
            self.text in _folded(repr(value)) for value in (task.args, task.kwargs) if value is not None
        )


@dataclass(frozen=True)
class Argument:
    """A value at a path in the arguments.

    Attributes:
        of: ``args`` or ``kwargs``.
        parts: Keys and positions on the way to the value.
        text: The value as text, which a text in the arguments may be; None if it has to be of its type.
        value: The value that the text has as JSON; ``NotImplemented`` if it is no JSON.
    """

    of: str
    parts: tuple[str, ...]
    text: str | None
    value: Any

    @classmethod
    def parse(cls, given: str) -> "Argument":
        """Reads ``PATH=VALUE``, such as ``0=17``, ``args.0=17`` or ``kwargs.user.id="17"``.

        Args:
            given: The path is a position, or begins with ``args`` or ``kwargs``; its parts have dots between them. The
                value is JSON, or else text. A value such as ``17`` is met by the number and by the text.

        Raises:
            ValueError: It is no such text; the error says what is wrong.
        """
        path, equals, text = given.partition("=")
        if not equals:
            raise ValueError(f"{quoted(given)} is not PATH=VALUE, such as kwargs.order.id=17 or 0=x")
        return cls(*_steps(path.strip()), text, _value_of(text))

    @classmethod
    def of_value(cls, path: str, value: Any) -> "Argument":
        """Returns an argument with a value of Python: ``17`` is met by the number only, ``"17"`` by the text only.

        Args:
            path: As of ``parse``.
            value: What JSON can have, or what Celery writes as text, such as a UUID or a datetime.

        Raises:
            ValueError: The path is none.
        """
        is_plain = value is None or isinstance(value, (bool, int, float, list, tuple, dict))
        wanted = list(value) if isinstance(value, tuple) else value
        text = value.isoformat() if hasattr(value, "isoformat") else str(value)
        return cls(*_steps(path), None if is_plain else text, wanted)

    def __str__(self) -> str:
        """Returns it as ``PATH=VALUE``."""
        return f"{'.'.join((self.of, *self.parts))}={json.dumps(self.value) if self.text is None else self.text}"

    def is_in(self, task: DelayedTask) -> bool:
        """Whether a task has it."""
        return any(map(self._is_it, _values_at(getattr(task, self.of), self.parts)))

    def _is_it(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self.text or found == self.value
        if found is None or isinstance(found, (bool, int, float, list, tuple, dict)):
            return self.value is not NotImplemented and _is_equal(found, self.value)
        # What the app's serializer makes of JSON, such as a UUID, a Decimal or a datetime; bytes are met as text.
        if isinstance(found, bytes):
            shown = found.decode(errors="backslashreplace")
        else:
            shown = found.isoformat() if hasattr(found, "isoformat") else str(found)
        if self.text in (shown, str(found)) or self.value in (shown, str(found)):
            return True
        return type(found) is type(self.value) and bool(found == self.value)


#: What may be sought: a text anywhere in the arguments, or a value at a path.
Sought = _Text | Argument


def sought(q: str) -> Sought:
    """Reads a text of one search field: ``kwargs.order.id=17`` is a value at a path, any other text is only a text.

    Raises:
        ValueError: It has a path that is none.
    """
    match = _PATH.fullmatch(q.strip())
    if match is None:
        return _Text(_folded(q.strip()))
    try:
        return Argument.parse(q.strip())
    except ValueError as error:
        raise ValueError(f"q={quoted(q)}: {error}") from None


def _steps(path: str) -> tuple[str, tuple[str, ...]]:
    """Returns ``args`` or ``kwargs``, and the parts of a path behind it."""
    if not isinstance(path, str):
        raise ValueError(f"the path {quoted(path)} is no text; write one like kwargs.order.id, args.0 or 0")
    of, *parts = path.split(".")
    if of.isdecimal():
        of, parts = "args", [of, *parts]
    if of not in ("args", "kwargs"):
        raise ValueError(f"the path {quoted(path)} begins neither with args or kwargs nor with a position")
    if not all(parts):
        raise ValueError(f"the path {quoted(path)} has an empty part; write one like kwargs.order.id=17 or args.0=x")
    if len(parts) > DEEPEST:
        raise ValueError(f"the path {quoted(path)} has {len(parts)} parts; {DEEPEST} are the most")
    return of, tuple(parts)


def _value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NotImplemented


def _folded(text: str) -> str:
    """Returns a text without regard to the case of letters and the kind of quotes: `repr` has both kinds."""
    return text.casefold().replace('"', "'").replace("\\'", "'")


def _values_at(value: Any, parts: tuple[str, ...]) -> Iterator[Any]:
    """Yields the values at a path. There are several where keys have dots in them."""
    if not parts:
        yield value
    elif isinstance(value, dict):
        for end in range(1, len(parts) + 1):
            key = ".".join(parts[:end])
            if key in value:
                yield from _values_at(value[key], parts[end:])
    elif isinstance(value, (list, tuple)) and parts[0].isdecimal() and int(parts[0][:9]) < len(value):
        yield from _values_at(value[int(parts[0][:9])], parts[1:])


def _is_equal(found: Any, wanted: Any) -> bool:
    """Whether two values are the same JSON: 1 is 1.0, and neither is true."""
    if isinstance(found, (list, tuple)) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_is_equal, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_is_equal(found[key], wanted[key]) for key in found)
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    return bool(found == wanted)
