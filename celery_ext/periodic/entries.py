"""What an app's schedule says: its entries, and what is wrong with some of them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from hashlib import sha1
from typing import Any, NamedTuple, Protocol

from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.schedules import schedule

from celery_ext.periodic.times import NeverComes, next_ms, whole_ms
from kombu_delayq.errors import quoted

#: What ``missed`` may be: one run for all those that were missed, none, or each of them.
MISSED = ("last", "skip", "all")
_NO_SCHEDULE = "its schedule is {}, not one of celery.schedules, nor a number of seconds"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
#: Where classes of schedules are from whose text says all of them.
_KNOWN = ("celery.schedules", "django_celery_beat.tzcrontab")
_PLAIN = frozenset((str, int, float, bool, type(None)))


@dataclass(frozen=True)
class Entry:
    """An entry of a schedule.

    Attributes:
        name: Its name.
        task: Name of the task.
        schedule: When it runs, a schedule of Celery's.
        args: Positional arguments; some may be lazy.
        kwargs: Keyword arguments; some may be lazy.
        options: Options of ``apply_async``. ``expires`` may be ``next``: when the next run is due.
        missed: One of ``MISSED``.
        is_on: Whether it runs.
        start_ms: No run comes before, ms since the epoch; None for no such time.
        end_ms: No run comes from then on, ms since the epoch; None for no such time.
        one_off: Whether it runs once.
        last_ms: Time of the last run that another scheduler has noted, ms since the epoch; None for none.
        row: Key of its row in a database; None for none.
    """

    name: str
    task: str
    schedule: Any
    args: Any = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    missed: str = "last"
    is_on: bool = True
    start_ms: int | None = None
    end_ms: int | None = None
    one_off: bool = False
    last_ms: int | None = None
    row: Any = None

    @cached_property
    def digest(self) -> str:
        """Changes when the entry does; the same in all processes with the same code."""
        parts = (self.task, self.args, self.kwargs, self.options, self.missed, self.start_ms, self.end_ms)
        said = _said((*parts, self.one_off, _of_schedule(self.schedule)))
        return sha1(said.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:16]

    def ends_with(self, run_ms: int) -> bool:
        """Whether no run comes after one: it runs once, and if at a certain time, one before that was of another."""
        moment = getattr(self.schedule, "clocked_time", None)
        return self.one_off and (moment is None or run_ms >= whole_ms(moment))

    def after(self, run_ms: int, zone: tzinfo) -> int | None:
        """Returns when the run after one is, ms since the epoch, in a time zone for schedules; None if none comes."""
        try:
            return None if self.ends_with(run_ms) else next_ms(self.schedule, run_ms, zone)
        except NeverComes:
            return None

    @cached_property
    def timing(self) -> tuple[Any, ...] | None:
        """The same for entries that run at the same times after the same run; None if nobody knows that."""
        if type(self.schedule).__module__ not in _KNOWN:
            return None
        expires_next = self.options.get("expires") == "next"
        bounds = self.start_ms, self.end_ms, self.one_off
        return *_of_schedule(self.schedule), self.missed, expires_next, *bounds


class Entries(NamedTuple):
    """The entries of an app.

    Attributes:
        entries: By name, those that can run.
        wrong: By name, why an entry cannot run.
        doubtful: By name, why an entry runs, but may not do what somebody wants.
    """

    entries: dict[str, Entry]
    wrong: dict[str, str]
    doubtful: dict[str, str]

    @property
    def digest(self) -> str:
        """Changes when an entry does."""
        said = "\n".join(f"{name} {entry.digest}" for name, entry in sorted(self.entries.items()))
        return sha1(said.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:16]

    def unlike(self, records: Mapping[str, str | bytes]) -> list[str]:
        """Returns the names of entries that are not as a process has written them down; of idle ones only the name."""
        armed = {name: json.loads(record)["digest"] for name, record in records.items() if name not in self.wrong}
        own = {name: entry.digest for name, entry in self.entries.items()}
        return sorted(name for name in own.keys() | armed if armed.get(name) not in ("", own.get(name)))


class Source(Protocol):
    """Where entries come from."""

    #: Whether entries change while the process runs.
    changes: bool

    def read(self) -> Entries | None:
        """Returns the entries; None if they are as they were at the last call."""

    def note(self, runs: Mapping[Any, Sequence[int]], now_ms: float) -> None:
        """Gets by row the times of the runs that have begun lately, in order, ms since the epoch; and Redis's clock.

        Only a source that changes is told.
        """

    def overwritten(self) -> list[str]:
        """Returns the names of entries that somebody has changed here, and that the settings of the app take back."""


def checked(app: Any, given: Mapping[str, Any]) -> Entries:
    """Reads entries, each by itself: one that is wrong stops no other.

    Args:
        app: The app.
        given: By name, an ``Entry``, why there is none, or what ``beat_schedule`` may have.
    """
    found = Entries({}, {}, {})
    for name, value in given.items():
        try:
            if isinstance(value, Exception):
                raise value
            entry = value if isinstance(value, Entry) else _entry(app, str(name), value)
            _check(entry)
        except Exception as error:  # each class of schedules and arguments fails in its own way
            found.wrong[str(name)] = str(error) or type(error).__name__
            continue
        found.entries[entry.name] = entry
        if entry.task not in app.tasks:
            found.doubtful[entry.name] = f"this process knows no task {entry.task}; is it imported?"
    return found


def _entry(app: Any, name: str, value: Any) -> Entry:
    if not isinstance(value, ScheduleEntry) and isinstance(value.get("schedule"), str):
        raise ValueError(_NO_SCHEDULE.format(quoted(value["schedule"])))
    stock = value if isinstance(value, ScheduleEntry) else ScheduleEntry(**{**value, "name": name, "app": app})
    options = dict(stock.options)
    missed = options.pop("missed", "last")
    # Celery would take a text for one argument a character.
    args = stock.args if stock.args is not None else ()
    # As with beat, the ``clocked`` of django-celery-beat, which has no end of its own, comes once.
    one_off = hasattr(stock.schedule, "clocked_time")
    return Entry(name, stock.task, stock.schedule, args, stock.kwargs, options, missed, one_off=one_off)


def _check(entry: Entry) -> None:
    if not entry.name:
        raise ValueError("it has no name")
    if not isinstance(entry.task, str) or not entry.task:
        raise ValueError(f"its task is {quoted(entry.task)}, not the name of a task")
    if not hasattr(entry.schedule, "remaining_estimate"):
        raise ValueError(_NO_SCHEDULE.format(quoted(entry.schedule)))
    if entry.missed not in MISSED:
        raise ValueError(f"missed is {quoted(entry.missed)}, not one of {', '.join(MISSED)}")
    if isinstance(entry.options.get("expires"), str) and entry.options["expires"] != "next":
        raise ValueError(f"expires is {quoted(entry.options['expires'])}, not a number of seconds, a moment or 'next'")
    if entry.options.get("eta") is not None:
        raise ValueError("it has an eta; its schedule says when it runs")
    if isinstance(entry.schedule, schedule) and entry.schedule.run_every.total_seconds() < 0.001:
        raise ValueError(f"it runs every {entry.schedule.run_every}, which is less than 1 ms")


def _of_schedule(of: Any) -> tuple[Any, ...]:
    """Returns what makes a schedule another one; the name of its class is not enough, and its repr is rounded."""
    seconds = getattr(getattr(of, "run_every", None), "total_seconds", str)()
    return (
        type(of).__qualname__,
        _ADDRESS.sub("", repr(of)),
        seconds,
        getattr(of, "relative", None),
        str(getattr(of, "tz", None)),
    )


def _said(value: Any) -> str:
    """Returns a text that is the same for the same value in each process."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{_said(name)}:{_said(one)}" for name, one in value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_said, value)) + "]"
    if isinstance(value, (set, frozenset)):
        return "<" + ",".join(sorted(map(_said, value))) + ">"
    if isinstance(value, BeatLazyFunc):
        return _said((getattr(value._func, "__qualname__", ""), value._func_params))
    return _ADDRESS.sub("", repr(value))
