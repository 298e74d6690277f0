"""Which waiting messages are meant: by queue, due time, task, arguments and priority."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import translate
from math import inf, isnan
from typing import TYPE_CHECKING, Any

from celery_ext.spreading.rows import Spreads
from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.errors import quoted
from kombu_delayq.message.times import iso_of

if TYPE_CHECKING:
    from kombu_delayq.store import WaitingStore

#: Longest text of a filter, in characters.
LONGEST = 500
#: Most parts of a path into the arguments.
DEEPEST = 16
_GLOB = re.compile(r"[*?\[]")
_PATH = re.compile(r"(args|kwargs)((?:\.[^=]*)?)=(.*)", re.DOTALL)


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

    Raises:
        ValueError: One of them is not of this kind; the text says which, and what is wrong.
    """

    queues: tuple[str, ...] | None = None
    from_ms: float = -inf
    to_ms: float = inf
    task: str | None = None
    q: str | None = None
    priority: int | None = None
    _name: re.Pattern[str] | None = field(default=None, init=False, repr=False, compare=False)
    _arguments: "_Text | _Path | None" = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.queues is not None:
            if isinstance(self.queues, str) or not all(isinstance(name, str) and name for name in self.queues):
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
            object.__setattr__(self, "_arguments", _sought(self.q))

    def with_parts(self, store: "WaitingStore") -> "Selection":
        """Returns a filter that also has the parts of its queues, where these are spread over several."""
        if self.queues is None:
            return self
        return replace(self, queues=tuple(Spreads.of(store).expand(self.queues)))

    @property
    def reads_bodies(self) -> bool:
        """Whether more than queue and due time counts, so that messages have to be read to know which match."""
        return not (self.task is None and self.q is None and self.priority is None)

    def covers(self, task: DelayedTask) -> bool:
        """Whether a message is in one of the queues, and due within the range."""
        message = task.message
        return self.from_ms <= message.due_ms < self.to_ms and (self.queues is None or message.queue in self.queues)

    def matches(self, task: DelayedTask) -> bool:
        """Whether a message meets all conditions."""
        return self.covers(task) and self.accepts(task)

    def accepts(self, task: DelayedTask) -> bool:
        """Whether task, arguments and priority of a message are as wanted; queue and due time do not count."""
        if self.priority is not None and task.priority != self.priority:
            return False
        if self.task is not None:
            name = task.name
            if name is None or (name != self.task if self._name is None else not self._name.match(name)):
                return False
        try:
            return self._arguments is None or self._arguments.is_in(task)
        except RecursionError:  # arguments that are nested too deeply to be written or compared
            return False

    def as_json(self) -> dict[str, Any]:
        """Returns the conditions that are given as JSON values, with times in ISO 8601, such as for an audit line."""
        given = {
            "queues": None if self.queues is None else list(self.queues),
            "from": None if self.from_ms == -inf else iso_of(self.from_ms),
            "to": None if self.to_ms == inf else iso_of(self.to_ms),
            "task": self.task,
            "q": self.q,
            "priority": self.priority,
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
class _Path:
    """A value at a path in the arguments.

    Attributes:
        of: ``args`` or ``kwargs``.
        parts: Keys and positions on the way to the value.
        text: The value as it is given.
        value: The value that the text has as JSON; ``NotImplemented`` if it is no JSON.
    """

    of: str
    parts: tuple[str, ...]
    text: str
    value: Any

    def is_in(self, task: DelayedTask) -> bool:
        return any(map(self._is_it, _values_at(getattr(task, self.of), self.parts)))

    def _is_it(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self.text or found == self.value
        if found is None or isinstance(found, (bool, int, float, list, tuple, dict)):
            return self.value is not NotImplemented and _is_equal(found, self.value)
        # What the app's serializer makes of JSON, such as a UUID, a Decimal or a datetime.
        shown = found.isoformat() if hasattr(found, "isoformat") else str(found)
        return self.text in (shown, str(found)) or self.value in (shown, str(found))


def _sought(q: str) -> _Text | _Path:
    match = _PATH.fullmatch(q.strip())
    if match is None:
        return _Text(_folded(q.strip()))
    of, path, text = match.groups()
    parts = tuple(path.split(".")[1:])
    if not all(parts):
        raise ValueError(f"q={quoted(q)} has an empty part in its path; write one like kwargs.order.id=17 or args.0=x")
    if len(parts) > DEEPEST:
        raise ValueError(f"q={quoted(q)} has {len(parts)} parts in its path; {DEEPEST} are the most")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = NotImplemented
    return _Path(of, parts, text, value)


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
