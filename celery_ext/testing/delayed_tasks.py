"""What the fixture ``delayed_tasks`` gives a test, and how it is made."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.transport import memory as stock

from celery_ext.connection import uses_delayq
from celery_ext.dead_letters import DeadLetter
from celery_ext.delays import durations
from celery_ext.limits import LIMIT_HEADER
from celery_ext.testing import brokers
from celery_ext.testing.apps import pointed_at, send_task_of_celery
from celery_ext.testing.brokers import Agenda, Broker
from celery_ext.testing.periodic_runs import PeriodicRuns
from celery_ext.testing.running import ByWorker, InThisProcess, Ran, Runs
from celery_ext.testing.sending import Clock, Sending
from celery_ext.testing.turns import ROUNDING_S
from celery_ext.waiting import DelayedTask
from kombu_delayq.errors import OtherTransport
from kombu_delayq.message import in_utc, ms_of

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


#: How many tasks that wait, and how many that have run, a text names.
MOST_SHOWN = 50


class DelayedTasks:
    """The delayed tasks of a test.

    Args:
        broker: Where they wait.
        runner: Runs them.
        sending: What the apps have sent, and the clock.
        runs: What has run.
    """

    def __init__(self, broker: Broker, runner: InThisProcess | ByWorker, sending: Sending, runs: Runs) -> None:
        self._broker, self._runner, self._sending, self._runs = broker, runner, sending, runs
        self._clock = sending.clock
        self._periodic = PeriodicRuns(sending.clock)

    @property
    def now(self) -> datetime:
        """The time by the test's clock, in UTC: that of the process, and all that ``advance`` has skipped."""
        return self._clock.moment

    @property
    def ran(self) -> list[Ran]:
        """All tasks that have run so far, in the order in which they ended."""
        return list(self._runs.all)

    def waiting(
        self,
        task: Any = None,
        *,
        in_: Duration | None = None,
        at: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        task_id: str | None = None,
        limit: str | None = None,
    ) -> list[DelayedTask]:
        """Returns the tasks that wait for their due time, the next due first.

        Args:
            task: Only this task: the task itself, or its name.
            in_: Only what is due in so long from now, within a second: such as ``"1h30m"``, or s, or a timedelta.
            at: Only what is due at this time, within a second; without a zone it is in UTC.
            args: Only calls with these positional arguments.
            kwargs: Only calls with these keyword arguments.
            queue: Only tasks of this queue.
            task_id: Only the task of this id.
            limit: Only tasks with this key of a limit, such as ``account:7``.
        """
        name, sending = getattr(task, "name", task), self._sending
        in_s = None if in_ is None else seconds_of(in_)
        moment = None if at is None else in_utc(checked_moment(at))
        return [
            one
            for one in self._in_order()
            if name in (None, one.name)
            and queue in (None, one.queue)
            and task_id in (None, one.id)
            and limit in (None, one.headers.get(LIMIT_HEADER))
            and (args is None or _plain(one.args) == _plain(args))
            and (kwargs is None or _plain(one.kwargs) == _plain(kwargs))
            and (in_s is None or _is_near(in_s, sending.left_s(one), sending.left_untouched_s(one)))
            and (moment is None or _is_near(0.0, (one.due - moment).total_seconds()))
        ]

    def has(self, task: Any = None, *, count: int | None = None, **wanted: Any) -> Found:
        """Returns whether a task waits, for an ``assert``; it is a list of those that were found, too.

        Args:
            task: As for ``waiting``.
            count: How many there should be; None for at least one.
            **wanted: As for ``waiting``.
        """
        ready = self._sending.ready(self._runs.ended)
        text = self._in_words("; ") + (f"; sent without a delay, and not run yet: {_shortened(ready)}" if ready else "")
        return Found(self.waiting(task, **wanted), count, text)

    def advance(self, duration: Duration, *, propagate: bool = True) -> list[Ran]:
        """Moves the clock on, and runs what comes due meanwhile, in order, each at its time.

        What a task sends is run, too, if it comes due in the same time. The time of day does not change: code that
        reads it reads the clock of the process. Of an app with ``install(app, periodic=True)`` the periodic tasks
        run, too; they count from the beginning of the test.

        Args:
            duration: How long: such as ``"2h"``, or s, or a timedelta.
            propagate: Whether to raise the error of a task that fails for good. Tasks that are due later wait then.

        Returns:
            What has run.
        """
        end_s = self._clock.still_s() + seconds_of(duration)

        def is_due(task: DelayedTask) -> bool:
            left_s = end_s - self._clock.still_s() + self._sending.slack_s(task)
            return self._sending.left_s(task) <= left_s + ROUNDING_S

        return self._run(is_due, end_s, propagate)

    def run_due(self, now: datetime | None = None, *, propagate: bool = True) -> list[Ran]:
        """Runs what is due, and what was sent without a delay, in order.

        Args:
            now: The time until which to run; the clock moves on to it. None for the time by the test's clock. Without a
                zone it is in UTC.
            propagate: As for ``advance``.

        Returns:
            What has run.
        """
        if now is None:
            return self.advance(0, propagate=propagate)
        end_ms = ms_of(checked_moment(now))
        end_s = self._clock.still_s() + (end_ms - self._clock.now_ms()) / 1000
        return self._run(lambda task: self._sending.due_ms(task) <= end_ms, end_s, propagate)

    def dead_letters(self, task: Any = None) -> list[DeadLetter]:
        """Returns the tasks that have failed for good and whose messages were buried, of each queue the oldest first.

        Args:
            task: Only this task: the task itself, or its name.
        """
        name = getattr(task, "name", task)
        return [letter for letter in self._broker.dead_letters() if name in (None, letter.name)]

    def clear(self) -> None:
        """Removes all that waits, and all dead letters. Nothing of it runs."""
        self._broker.clear()
        self._sending.immediate.clear()

    def describe(self) -> str:
        """Returns what waits and what has run, as text."""
        ran, left_out = self._runs.all[-MOST_SHOWN:], len(self._runs.all) - MOST_SHOWN
        shown = [f"{left_out:,} before", *map(repr, ran)] if left_out > 0 else map(repr, ran)
        ready = self._sending.ready(self._runs.ended)
        in_queues = f"sent without a delay, and not run yet:\n  {_shortened(ready)}\n" if ready else ""
        if held := self._runner.turns.held:
            in_queues += f"held back by limits:\n  {_shortened(held)}\n"
        waiting = f"waiting:\n  {self._in_words(chr(10) + '  ')}\n"
        return f"{waiting}{in_queues}ran:\n  " + ("\n  ".join(shown) or "nothing")

    def _run(self, is_due: Callable[[DelayedTask], bool], end_s: float, propagate: bool) -> list[Ran]:
        """Runs what is due, and moves the clock on to a time."""
        before, check_end = len(self._runs.all), self._sending.endless()
        agenda = Agenda(self._broker, self._sending)
        self._periodic.send(end_s)
        while True:
            check_end()
            self._runner.run_ready(propagate, check_end)
            task = agenda.take(lambda one: is_due(one) and self._sending.left_s(one) <= self._held_s())
            if task is not None:
                self._clock.skip(min(self._sending.left_s(task), end_s - self._clock.still_s()))
                self._runner.run(task, propagate)
                continue
            held_s, left_s = self._held_s(), end_s - self._clock.still_s()
            self._clock.skip(min(held_s, left_s))
            if held_s > left_s + ROUNDING_S:
                return self._runs.all[before:]

    def _held_s(self) -> float:
        """Returns in how many s the first task may run that a limit holds back; infinity for not by itself."""
        return self._runner.turns.next_s - self._clock.still_s()

    def _in_order(self) -> list[DelayedTask]:
        return sorted(self._broker.waiting(), key=Agenda(self._broker, self._sending).place)

    def _in_words(self, separator: str) -> str:
        tasks = self._in_order()
        shown = [line(task, self._sending.left_s(task)) for task in tasks[:MOST_SHOWN]]
        if len(tasks) > MOST_SHOWN:
            shown.append(f"and {len(tasks) - MOST_SHOWN:,} more")
        return separator.join(shown) or "nothing"


def _shortened(names: Sequence[str]) -> str:
    more = [f"and {len(names) - MOST_SHOWN:,} more"] if len(names) > MOST_SHOWN else []
    return ", ".join([*names[:MOST_SHOWN], *more])


#: The broker in memory.
MEMORY = "memory"

Connect = Callable[[Any], Connection]


@contextmanager
def delayed_tasks(broker: str, worker: Any = None) -> Iterator[DelayedTasks]:
    """Points all apps of the process at a broker of the test.

    Args:
        broker: ``memory``, or the URL of a Redis.
        worker: A worker of the test that runs in this process, or None. It keeps its own broker, which the apps use
            then.

    Raises:
        OtherTransport: The worker's broker is neither in memory nor one of ours.
    """
    clock, runs = Clock(), Runs()
    # A worker declares its queues itself.
    sending = Sending(clock, send_task_of_celery(), brokers.declare if worker is None else lambda app: None)
    place = _place_of(worker.app, clock) if worker is not None else _place(broker, clock)
    with place as connect, pointed_at(connect, sending) as patches:
        connection = worker.app.connection_for_write() if connect is None else connect(None)
        own = brokers.Broker(connection, sending)
        if worker is not None:
            patches.extend(worker.app)
        runner = InThisProcess(own, sending, runs, patches.extend) if worker is None else ByWorker(own, sending, runs)
        runs.listen()
        try:
            yield DelayedTasks(own, runner, sending, runs)
        finally:
            runs.close()
            own.close()


def _place(broker: str, clock: Clock) -> AbstractContextManager[Connect | None]:
    return brokers.memory(clock, shared=False) if broker == MEMORY else brokers.redis(broker)


def _place_of(app: Celery, clock: Clock) -> AbstractContextManager[Connect | None]:
    with app.connection_for_read() as connection:
        if uses_delayq(connection):
            return nullcontext()
        if issubclass(connection.get_transport_cls(), stock.Transport):
            return brokers.memory(clock, shared=True)
        raise OtherTransport(
            f"the worker of the test has the broker {connection.as_uri()}. With the fixture delayed_tasks its app "
            "needs broker_url='memory://', or a Redis with broker_transport='kombu_delayq.transport:Transport'"
        )
