"""What the apps of a process send during a test: by the test's clock, and with a note of each call."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple
from weakref import ref

from celery import Celery
from celery.utils import uuid
from dateutil.parser import isoparse

from celery_ext.waiting import DelayedTask
from kombu_delayq.message import in_utc, once

#: A step of the process's clock that is longer than the time that has passed by so many s was made by somebody, such as
#: freezegun. Shorter ones are the clock's own corrections.
_JUMP_S = 0.5
#: How often to look whether the process's clock goes on. It tells parts of a microsecond.
_LOOKS = 100


class Clock:
    """Tells a test's time, in two ways that differ by how long the test itself takes.

    ``now_s`` goes on by itself. It is the time for a due time that somebody read off the process's clock. ``still_s``
    stands still between two calls of ``skip``. By it a countdown of 30 minutes is over after exactly 30 minutes,
    however slow the test is. When somebody moves the process's clock, both move to where it is then.

    Attributes:
        skipped_s: What the test has skipped, s.
        moves: How often somebody has moved the process's clock, as far as ``still_s`` has seen.
        ticked_s: How long at most the process's clock has gone on by itself since the latest move, s.
    """

    def __init__(self) -> None:
        self.skipped_s = self.ticked_s = 0.0
        self.moves = 0
        self._begun_ms: float | None = None
        self._still_s = self._seen_s = time.time()
        self._seen_monotonic_s = _monotonic_s()

    def now_s(self) -> float:
        """Returns the time, s since the epoch."""
        return time.time() + self.skipped_s

    def now_ms(self) -> float:
        """Returns the time, ms since the epoch."""
        return self.now_s() * 1000

    @property
    def moment(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.now_s(), UTC)

    def still_s(self) -> float:
        """Returns the time that stands still, s since the epoch."""
        seen_s, monotonic_s = time.time(), _monotonic_s()
        step_s, passed_s = seen_s - self._seen_s, monotonic_s - self._seen_monotonic_s
        self._seen_s, self._seen_monotonic_s = seen_s, monotonic_s
        if not -_JUMP_S <= step_s <= passed_s + _JUMP_S:
            self._still_s = seen_s
            self.moves += 1
            self._begun_ms = self._begun_ms if step_s > 0 else None
            # It was moved at some time since the latest look.
            self.ticked_s = passed_s if _is_ticking() else 0.0
        else:
            self.ticked_s += step_s
        return self._still_s + self.skipped_s

    def begin(self) -> float:
        """Begins the test, unless it has begun. When somebody has moved the process's clock back, it begins anew.

        Returns:
            When it has begun, ms since the epoch.
        """
        self.still_s()  # sees such a move
        if self._begun_ms is None:
            self._begun_ms = self.now_ms()
        return self._begun_ms

    def skip(self, seconds: float) -> None:
        """Skips so many s; nothing if negative."""
        self.skipped_s += max(seconds, 0.0)


def _is_ticking() -> bool:
    seen_s = time.time()
    return any(time.time() != seen_s for _ in range(_LOOKS))


def _monotonic_s() -> float:
    # Libraries that fake the time replace time.monotonic as well.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


#: If tasks send more calls than these while the test runs what is due, it is taken for one that would never end.
MOST_SENT = 10_000
#: By how much a task may run early when somebody moves the process's clock, in s.
_MOST_SLACK_S = 1.0
#: Places of arguments of ``send_task`` that may come without their names.
_ARGUMENTS = ("args", "kwargs", "countdown", "eta", "task_id")
#: Longest countdown in s that a datetime can name; Celery refuses longer ones.
_MOST_S = 9999 * 366 * 86400


class Sent(NamedTuple):
    """A call of a task.

    Attributes:
        number: Its number among all calls of the test.
        app: The app that sent it.
        eta: The eta in its message, ISO 8601; None without a delay.
        sent_s: When it was sent, by the clock that stands still, s since the epoch.
        delay_s: Its delay in s.
        is_countdown: Whether the delay was given as a countdown.
        expires_s: When it expires, by the clock that stands still, s since the epoch; None if it does not, or at a
            given moment.
        name: The name of the task.
        moves: How often somebody had moved the process's clock before.
        ticked_s: How long at most that clock had gone on by itself since, s.
    """

    number: int
    app: Callable[[], Celery | None]
    eta: str | None
    sent_s: float
    delay_s: float
    is_countdown: bool
    expires_s: float | None
    name: str
    moves: int
    ticked_s: float


class Sending:
    """Takes the place of ``Celery.send_task``, through which all calls of tasks pass.

    Args:
        clock: The clock of the test.
        send_task: Celery's own method.
        prepare: Called with each app before its first call.
    """

    def __init__(self, clock: Clock, send_task: Callable[..., Any], prepare: Callable[[Any], None]) -> None:
        self.clock = clock
        #: The latest call of each task id.
        self.sent: dict[str, Sent] = {}
        #: Ids of the calls without a delay that were sent.
        self.immediate: list[str] = []
        #: Ids that were revoked. A task that is sent later under one of them does not run either.
        self.revoked: set[str] = set()
        #: The apps that have sent a call.
        self.senders: set[Callable[[], Celery | None]] = set()
        self._send_task, self._prepare = send_task, prepare
        self._latest = -1, ""
        self._numbers = count()

    def send_task(self, app: Celery, name: str, *given: Any, **options: Any) -> Any:
        """Sends a task, with the arguments and the result of ``Celery.send_task``.

        A countdown becomes an eta by the clock of the test. An eta comes later by all that the test has skipped,
        because its maker has read the clock of the process.
        """
        self.clock.begin()  # a move before the first call is part of what the test prepares
        called_s = self.clock.now_s()  # first: the preparation may take long
        if ref(app) not in self.senders:
            self._prepare(app)
        options = {**dict(zip(_ARGUMENTS, given, strict=False)), **options}
        more = given[len(_ARGUMENTS) :]
        countdown, eta = options.pop("countdown", None), options.pop("eta", None)
        is_countdown = not eta and is_delay(countdown)
        if is_countdown:
            eta = self._after(countdown)
        elif eta:
            eta = self._later(eta)
        elif countdown is not None:
            options["countdown"] = countdown  # Celery says what is wrong with it
        expires_s = self._expire(options)
        task_id = options.pop("task_id", None) or uuid()
        still_s, number = self.clock.still_s(), next(self._numbers)
        self._latest = number, name
        self.senders.add(ref(app))
        before = self.sent.get(task_id)
        self.sent[task_id] = Sent(
            number,
            ref(app),
            eta.isoformat() if isinstance(eta, datetime) else None,
            still_s,
            countdown if is_countdown else _seconds_of(eta) - called_s if eta else 0.0,
            is_countdown,
            expires_s,
            name,
            self.clock.moves,
            self.clock.ticked_s,
        )
        places = [options.pop(argument, None) for argument in ("args", "kwargs", "countdown")]
        result = self._send_task(app, name, *places, eta, task_id, *more, **options)
        became = once.became.get() if once.IF_WAITING in options else None
        if became is not None and became.outcome == "kept":  # what waits is an earlier call
            del self.sent[task_id]
            self.sent |= {} if before is None else {task_id: before}
        elif not eta:  # not before: a call that cannot be sent never runs
            self.immediate.append(task_id)
        return result

    @property
    def latest_number(self) -> int:
        """The number of the latest call; -1 before the first one."""
        return self._latest[0]

    def note_requeued(self, name: str | None) -> None:
        """Counts a message that goes back to its queue as a call, for ``endless``."""
        self._latest = next(self._numbers), name or ""

    def endless(self) -> Callable[[], None]:
        """Returns a function that raises a RuntimeError when too many calls have been sent since."""
        begun, _ = self._latest

        def check() -> None:
            number, name = self._latest
            if number - begun > MOST_SENT:
                raise RuntimeError(
                    f"while tasks ran, they have sent or requeued more than {MOST_SENT:,}, {name} last: do they send "
                    "each other for ever?"
                )

        return check

    def ready(self, ended: Callable[[str], int]) -> list[str]:
        """Returns the names of the tasks that were sent without a delay and have not run, in the order of sending.

        Args:
            ended: Returns how many runs of an id have ended.
        """
        calls = Counter(self.immediate)
        return [self.sent[task_id].name for task_id, count in calls.items() if ended(task_id) < count]

    def left_s(self, task: DelayedTask) -> float:
        """Returns in how many s a waiting task is due; negative if it was due."""
        call = self.call_of(task)
        if call is not None and call.is_countdown:
            return call.sent_s + call.delay_s - self.clock.still_s()
        return task.message.due_ms / 1000 - self.clock.now_s()

    def left_untouched_s(self, task: DelayedTask) -> float:
        """Returns in how many s a waiting task would be due if the test itself took no time."""
        call = self.call_of(task)
        return self.left_s(task) if call is None else call.sent_s + call.delay_s - self.clock.still_s()

    def due_ms(self, task: DelayedTask) -> float:
        """Returns when a waiting task is due, ms since the epoch; with a countdown by the clock that stands still."""
        call = self.call_of(task)
        if call is not None and call.is_countdown:
            return (call.sent_s + call.delay_s) * 1000
        return task.message.due_ms

    def slack_s(self, task: DelayedTask) -> float:
        """Returns by how many s a waiting task may run early after somebody has moved the process's clock.

        A clock that ticks goes on between a move and the sending of a task. A test that moves it to 12:00, sends a
        task with a countdown of an hour and moves it to 13:00 would be a moment too early for the task.
        """
        call = self.call_of(task)
        return 0.0 if call is None or call.moves == self.clock.moves else min(call.ticked_s, _MOST_SLACK_S)

    def call_of(self, task: DelayedTask) -> Sent | None:
        """Returns the call that sent a waiting task; None if it was sent elsewhere, or rescheduled since."""
        call = self.sent.get(task.id)
        return call if call is not None and call.eta == task.eta else None

    def is_expired(self, task_id: str, header: Any) -> bool | None:
        """Whether a task has expired by the clock of the test; None for one that does not expire.

        Args:
            task_id: Its id.
            header: The header ``expires`` of its message, ISO 8601.
        """
        call = self.sent.get(task_id)
        if call is not None and call.expires_s is not None:
            return self.clock.still_s() > call.expires_s
        return isoparse(header).timestamp() < self.clock.now_s() if isinstance(header, str) else None

    def _after(self, seconds: float) -> datetime:
        return self.clock.moment + timedelta(seconds=seconds)

    def _later(self, eta: Any) -> Any:
        """Returns an eta, later by what was skipped; a text that is no time, such as a placeholder, as it is."""
        try:
            moment = isoparse(eta) if isinstance(eta, str) else eta
            return in_utc(moment).astimezone(UTC) + timedelta(seconds=self.clock.skipped_s)
        except (ValueError, OverflowError, AttributeError):
            return eta

    def _expire(self, options: dict[str, Any]) -> float | None:
        """Lets a call expire by the clock of the test. Returns when, by the clock that stands still."""
        expires = options.get("expires")
        if isinstance(expires, (int, float)):
            options["expires"] = self._after(expires)
            return self.clock.still_s() + expires
        if expires:
            options["expires"] = self._later(expires)
        return None


def is_delay(countdown: Any) -> bool:
    """Whether a countdown is one that makes a task wait. Celery sends others at once, or refuses them."""
    return isinstance(countdown, int | float) and 0 < countdown <= _MOST_S


def _seconds_of(moment: Any) -> float:
    return moment.timestamp() if isinstance(moment, datetime) else 0.0
