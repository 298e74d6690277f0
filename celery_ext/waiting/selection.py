"""Which waiting messages are meant: by queue, due time, task, arguments and priority."""

import re
from dataclasses import dataclass, field
from fnmatch import translate
from math import inf, isnan
from typing import TYPE_CHECKING, Any

from celery_ext.waiting.arguments import Argument, Sought, sought
from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.errors import quoted
from kombu_delayq.message.fields import task_at_start
from kombu_delayq.message.times import iso_of

if TYPE_CHECKING:
    pass

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
        return not (self.task is None and self.q is None and self.priority is None and not self.arguments)

    def covers(self, task: DelayedTask) -> bool:
        """Whether a message is in one of the queues, and due within the range."""
        message = task.message
        return self.from_ms <= message.due_ms < self.to_ms and (self.queues is None or message.queue in self.queues)

    def matches(self, task: DelayedTask) -> bool:
        """Whether a message meets all conditions."""
        return self.covers(task) and self.accepts(task)

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
