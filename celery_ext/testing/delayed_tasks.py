"""What the fixture ``delayed_tasks`` gives a test: what waits, and a clock that the test moves on."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from celery_ext.testing.agenda import Agenda
from celery_ext.testing.brokers import Broker
from celery_ext.testing.matching import Duration, Found, Wanted, checked_moment, line, seconds_of
from celery_ext.testing.runners import Runner
from celery_ext.testing.running import Ran, Runs
from celery_ext.testing.sending import Sending
from celery_ext.waiting import DelayedTask
from kombu_delayq.message.due import ms_of

#: By how much sums of times may differ, in s.
_ROUNDING_S = 0.001
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

    def __init__(self, broker: Broker, runner: Runner, sending: Sending, runs: Runs) -> None:
        self._broker, self._runner, self._sending, self._runs = broker, runner, sending, runs
        self._clock = sending.clock

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
        """
        is_meant = Wanted(task, in_, at, args, kwargs, queue, task_id).check(self._sending)
        return [one for one in self._in_order() if is_meant(one)]

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
        reads it reads the clock of the process.

        Args:
            duration: How long: such as ``"2h"``, or s, or a timedelta.
            propagate: Whether to raise the error of a task that fails for good. Tasks that are due later wait then.

        Returns:
            What has run.
        """
        end_s = self._clock.still_s() + seconds_of(duration)

        def is_due(task: DelayedTask) -> bool:
            left_s = end_s - self._clock.still_s() + self._sending.slack_s(task)
            return self._sending.left_s(task) <= left_s + _ROUNDING_S

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

    def clear(self) -> None:
        """Removes all that waits. Nothing of it runs."""
        self._broker.clear()
        self._sending.immediate.clear()

    def describe(self) -> str:
        """Returns what waits and what has run, as text."""
        ran, left_out = self._runs.all[-MOST_SHOWN:], len(self._runs.all) - MOST_SHOWN
        shown = [f"{left_out:,} before", *map(repr, ran)] if left_out > 0 else map(repr, ran)
        ready = self._sending.ready(self._runs.ended)
        in_queues = f"sent without a delay, and not run yet:\n  {_shortened(ready)}\n" if ready else ""
        waiting = f"waiting:\n  {self._in_words(chr(10) + '  ')}\n"
        return f"{waiting}{in_queues}ran:\n  " + ("\n  ".join(shown) or "nothing")

    def _run(self, is_due: Callable[[DelayedTask], bool], end_s: float, propagate: bool) -> list[Ran]:
        """Runs what is due, and moves the clock on to a time."""
        before, check_end = len(self._runs.all), self._sending.endless()
        agenda = Agenda(self._broker, self._sending)
        while True:
            check_end()
            self._runner.run_ready(propagate, check_end)
            task = agenda.take(is_due)
            if task is None:
                self._clock.skip(end_s - self._clock.still_s())
                return self._runs.all[before:]
            self._clock.skip(min(self._sending.left_s(task), end_s - self._clock.still_s()))
            self._runner.run(task, propagate)

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
