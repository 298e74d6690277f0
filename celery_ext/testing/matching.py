"""Which waiting tasks a test means, and what to say if there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery_ext.delays import durations
from celery_ext.testing.sending import Sending
from celery_ext.waiting import DelayedTask
from kombu_delayq.message.due import in_utc

#: How far a due time may be from the one that a test names, in s: Celery takes the time a moment before the task is
#: sent.
TOLERANCE_S = 1.0

#: A time from now: ``"1h30m"``, or s, or a timedelta.
Duration = str | float | timedelta


def seconds_of(duration: Duration) -> float:
    """Returns a duration in s.

    Raises:
        ValueError: It is no duration, or is negative, or is more than 100 years.
        TypeError: It is something else, such as a datetime.
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        seconds = durations.parse(duration)
    elif isinstance(duration, int | float):
        seconds = float(duration)
    else:
        raise TypeError(f'{duration!r} is not a duration: give a text such as "1h30m", or s, or a timedelta')
    if not 0 <= seconds <= durations.MAX_S:
        raise ValueError(f"{duration!r} is not a duration between 0 and 100 years")
    return seconds


def checked_moment(moment: datetime) -> datetime:
    """Returns a moment.

    Raises:
        TypeError: It is something else, such as a duration.
    """
    if not isinstance(moment, datetime):
        raise TypeError(f'{moment!r} is no datetime. For a time from now there are advance("2h") and in_="2h"')
    return moment


@dataclass(frozen=True)
class Wanted:
    """Which waiting tasks are meant; None means any.

    Attributes:
        task: The task, or its name.
        in_: In how long it is due.
        at: When it is due; without a zone it is in UTC.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        queue: Its queue.
        task_id: Its id.
    """

    task: Any = None
    in_: Duration | None = None
    at: datetime | None = None
    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    queue: str | None = None
    task_id: str | None = None

    def check(self, sending: Sending) -> Callable[[DelayedTask], bool]:
        """Returns a function that says whether a waiting task is meant."""
        name = getattr(self.task, "name", self.task)
        in_s = None if self.in_ is None else seconds_of(self.in_)
        at = None if self.at is None else in_utc(checked_moment(self.at))

        def is_meant(task: DelayedTask) -> bool:
            return (
                name in (None, task.name)
                and self.queue in (None, task.queue)
                and self.task_id in (None, task.id)
                and (self.args is None or _plain(task.args) == _plain(self.args))
                and (self.kwargs is None or _plain(task.kwargs) == _plain(self.kwargs))
                and (in_s is None or _is_near(in_s, sending.left_s(task), sending.left_untouched_s(task)))
                and (at is None or _is_near(0.0, (task.due - at).total_seconds()))
            )

        return is_meant


class Found(list[DelayedTask]):
    """The waiting tasks that a test means. In an ``assert`` it says what waits instead.

    Args:
        tasks: Those that are meant.
        count: How many there should be; None for at least one.
        waiting: What waits, as text.
    """

    def __init__(self, tasks: Sequence[DelayedTask], count: int | None, waiting: str) -> None:
        super().__init__(tasks)
        self._count, self._waiting = count, waiting

    def __bool__(self) -> bool:
        return len(self) > 0 if self._count is None else len(self) == self._count

    def __repr__(self) -> str:
        such = f"{len(self) or 'no'} such {'tasks wait' if len(self) > 1 else 'task waits'}"
        if self._count not in (None, len(self)):
            such += f", not {self._count}"
        return f"<{such}; all that waits: {self._waiting}>"


def line(task: DelayedTask, left_s: float) -> str:
    """Returns a waiting task as a line of text."""
    if isinstance(task.args, list) and isinstance(task.kwargs, dict):
        given = ", ".join([*map(repr, task.args), *(f"{name}={value!r}" for name, value in task.kwargs.items())])
    else:
        given = f"{task.argsrepr}, {task.kwargsrepr}"
    return f"{task.name}({given}) {durations.in_words(left_s)}, queue {task.queue}"


def _is_near(wanted_s: float, *found_s: float) -> bool:
    return min(found_s) - TOLERANCE_S <= wanted_s <= max(found_s) + TOLERANCE_S


def _plain(value: Any) -> Any:
    """Returns a value with lists in place of tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
