"""The options that select waiting messages, and the search for these."""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from math import inf
from typing import Any, NamedTuple, TypeVar

import click

from celery_ext.cli.options import GivenMoment, moment
from celery_ext.cli.output import number_of, print_stderr
from celery_ext.cli.progress import Bar
from celery_ext.waiting import (
    Argument,
    DelayedTask,
    Done,
    Progress,
    Selection,
    Skipped,
    search_tasks,
)
from kombu_delayq.store import DelayStore

F = TypeVar("F", bound=Callable[..., Any])


class Criteria(NamedTuple):
    """What was given of the options."""

    task: str | None
    due_from: GivenMoment | None
    due_to: GivenMoment | None
    arguments: tuple[Argument, ...]

    def selection(self, now_ms: float, queues: Iterable[str] | None = None) -> Selection:
        """Returns the filter, given Redis's clock in ms.

        Raises:
            click.UsageError: A value is wrong, such as a range that ends before it begins.
        """
        try:
            return Selection(
                queues=None if queues is None else tuple(queues),
                from_ms=self.due_from.at(now_ms) if self.due_from else -inf,
                to_ms=self.due_to.at(now_ms) if self.due_to else inf,
                task=self.task,
                arguments=self.arguments,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def criteria_options(command: F) -> F:
    """Adds ``--task``, ``--due-from``, ``--due-to`` and ``--arg``, which the command gets as ``criteria``."""

    @wraps(command)
    def with_criteria(*args: Any, **given: Any) -> Any:
        criteria = Criteria(*(given.pop(name) for name in ("task", "due_from", "due_to", "arguments")))
        return command(*args, criteria=criteria, **given)

    options = (
        click.option("--task", metavar="NAME", help="Only messages of this task, or of a pattern such as 'shop.*'."),
        click.option(
            "--due-from",
            type=moment,
            help="Only messages due from this time on: ISO 8601, or from now, such as 10m.",
        ),
        click.option("--due-to", type=moment, help="Only messages due earlier."),
        click.option(
            "--arg",
            "arguments",
            metavar="PATH=VALUE",
            multiple=True,
            callback=_parse_arguments,
            help="Only tasks with this argument, such as 0=17, kwargs.user.id=17 or kwargs.name='\"17\"'. The value is "
            "JSON, or else text. Repeatable: all have to hold. Arguments in a pickle are not looked into.",
        ),
    )
    found: Any = with_criteria
    for option in reversed(options):
        found = option(found)
    return found  # type: ignore[no-any-return]


def _parse_arguments(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[Argument, ...]:
    try:
        return tuple(map(Argument.parse, given))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def report_unreadable(number: int) -> None:
    """Says how many tasks may be meant or not, if there are any."""
    if number:
        print_stderr(
            f"{number_of(number, 'task is', 'tasks are')} left out: arguments that cannot be read, such as "
            "those in a pickle, which is never loaded"
        )


class TaskSearch:
    """Searches the selected messages, with a progress bar, and names on stderr the queues that Redis cannot read.

    Attributes:
        failed: Whether a queue cannot be read.
        more: Whether there are more messages than the limit.
        unreadable: How many messages may be meant or not.
    """

    def __init__(self, store: DelayStore, selection: Selection, limit: int | None = None) -> None:
        self.failed = self.more = False
        self.unreadable = 0
        self._store, self._selection, self._limit = store, selection, limit

    def tasks(self, label: str, *, printing: bool) -> Iterator[DelayedTask]:
        """Yields the messages, the next due first. The arguments are those of ``Bar``."""
        with Bar(label, printing=printing) as bar:
            for event in search_tasks(self._store, self._selection, limit=self._limit):
                match event:
                    case DelayedTask():
                        yield event
                    case Progress(looked, of, unreadable):
                        self.unreadable = unreadable
                        bar(looked, of)
                    case Skipped():  # such as for a key of another type; the other queues go on
                        report_skipped([event])
                        self.failed = True
                    case Done(cursor):
                        self.more = cursor is not None


def report_skipped(skipped: Iterable[Skipped]) -> None:
    """Names the queues that cannot be read."""
    for one in skipped:
        print_stderr(f"queue {one.queue!r}: {one.error}")
