"""Which waiting messages are meant: by queue, due time, task, priority and arguments."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from math import inf, isnan
from typing import Any

from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.errors import quoted
from kombu_delayq.message import iso_of, task_at_start

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


#: Longest text of a filter, in characters.
LONGEST = 500
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A filter of waiting messages. All its conditions have to hold.

    Attributes:
        queues: Names of queues; None for all queues, an empty tuple for none.
        from_ms: Least due time, ms since the epoch.
        to_ms: Due time that all messages are before, ms since the epoch.
        task: Name of a task, or a pattern with ``*``, ``?`` and ``[…]``, such as ``shop.*``.
        q: What to search the arguments for. ``kwargs.order.id=17`` or ``args.0=x`` compares the value at a path,
            written as JSON or as plain text. Any other text is looked for in the ``repr`` of the arguments, whatever
            the case of its letters and its kind of quotes.
        priority: 0 to 9.
        arguments: Values that the arguments have at certain paths. A task whose arguments cannot be read, such as those
            in a pickle, has none of them.
        retried: Whether only tasks are meant that have run before, and wait for a retry.

    Raises:
        ValueError: One of them is not of this kind; the text says which, and what is wrong.
    """

    queues: tuple[str, ...] | None = None
    from_ms: float = -inf
    to_ms: float = inf
    task: str | None = None
    q: str | None = None
    priority: int | None = None
    arguments: tuple[Argument, ...] = ()
    retried: bool = False
    _name: re.Pattern[str] | None = field(default=None, init=False, repr=False, compare=False)
    _sought: Sought | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.queues is not None:
            if isinstance(self.queues, str) or not all(isinstance(name, str) for name in self.queues):
                raise ValueError(f"queues={quoted(self.queues)} are no names of queues")
            object.__setattr__(self, "queues", tuple(sorted(set(self.queues))))
        self._check_range()
        for name in ("task", "q"):
            self._check_text(name, getattr(self, name))
        if self.priority is not None and (isinstance(self.priority, bool) or self.priority not in range(10)):
            raise ValueError(f"priority={quoted(self.priority)} is no number from 0 to 9")
        if self.task is not None and _GLOB.search(self.task):
            object.__setattr__(self, "_name", re.compile(translate(self.task)))
        if self.q is not None:
            object.__setattr__(self, "_sought", sought(self.q))

    @property
    def reads_bodies(self) -> bool:
        """Whether more than queue and due time counts, so that messages have to be read to know which match."""
        given = self.task, self.q, self.priority
        return self.retried or bool(self.arguments) or any(one is not None for one in given)

    def matches(self, task: DelayedTask) -> bool:
        """Whether a message meets all conditions."""
        message = task.message
        is_in_range = self.from_ms <= message.due_ms and (message.due_ms < self.to_ms or self.to_ms == inf)
        return is_in_range and (self.queues is None or message.queue in self.queues) and self.accepts(task)

    def accepts(self, task: DelayedTask) -> bool:
        """Whether task, arguments and priority of a message are as wanted; queue and due time do not count."""
        if not self._accepts_head(task):
            return False
        try:
            return (self._sought is None or self._sought.is_in(task)) and all(one.is_in(task) for one in self.arguments)
        except RecursionError:  # arguments that are nested too deeply to be written or compared
            return False

    def cannot_read(self, task: DelayedTask) -> bool:
        """Whether only the arguments of a task could tell whether it is wanted, and they cannot be read."""
        if not self.arguments or not self._accepts_head(task) or task.name is None:
            return False
        return task.args is None and task.kwargs is None

    def _accepts_head(self, task: DelayedTask) -> bool:
        if self.priority is not None and task.priority != self.priority:
            return False
        if self.retried and _is_first_run(task):
            return False
        if self.task is None:
            return True
        # Of many tasks few are meant, and to read a whole message takes long.
        start = task_at_start(task.message.body)
        return (start is None or self._is_named(start)) and self._is_named(task.name)

    def _is_named(self, name: str | None) -> bool:
        # A name may have the characters of a pattern itself.
        return name is not None and (name == self.task or (self._name is not None and bool(self._name.match(name))))

    def as_json(self) -> dict[str, Any]:
        """Returns the conditions that are given as JSON values, with times in ISO 8601, such as for an audit line."""
        given = {
            "queues": None if self.queues is None else list(self.queues),
            "from": None if self.from_ms == -inf else iso_of(self.from_ms),
            "to": None if self.to_ms == inf else iso_of(self.to_ms),
            "task": self.task,
            "q": self.q,
            "priority": self.priority,
            "arguments": [str(one) for one in self.arguments] or None,
            "retried": self.retried or None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _check_range(self) -> None:
        for name, value in (("from_ms", self.from_ms), ("to_ms", self.to_ms)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or isnan(value):
                raise ValueError(f"{name}={quoted(value)} is no time in ms")
        if self.from_ms >= self.to_ms:
            start, end = (iso_of(value) or value for value in (self.from_ms, self.to_ms))
            raise ValueError(f"the range is empty: it begins at {start}, and ends before {end}")

    def _check_text(self, name: str, value: object) -> None:
        if value is None:
            return
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}={quoted(value)} is no text to look for")
        if len(value) > LONGEST:
            raise ValueError(f"{name} has {len(value):,} characters; {LONGEST} are the most")


#: How Celery writes the header of a task that has not run before.
_NO_RETRY = b'"retries": 0'


def _is_first_run(task: DelayedTask) -> bool:
    """Whether a task has not run before. Of many tasks few have, and to read a whole message takes long."""
    return _NO_RETRY in (task.message.body or b"") or not task.retries
