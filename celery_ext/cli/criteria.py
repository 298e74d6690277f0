"""The options that say which waiting messages a command means: by task, due time and arguments."""

from collections.abc import Callable, Iterable
from functools import wraps
from math import inf
from typing import Any, NamedTuple, TypeVar

import click

from celery_ext.cli.param_types import MOMENT, Moment
from celery_ext.waiting.arguments import Argument
from celery_ext.waiting.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])


class Criteria(NamedTuple):
    """What was given of the options.

    Attributes:
        task: Name or pattern of a task.
        due_from: Least due time.
        due_to: Due time that all messages are before.
        arguments: Values in the arguments.
    """

    task: str | None
    due_from: Moment | None
    due_to: Moment | None
    arguments: tuple[Argument, ...]

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any(self)

    @property
    def reads_bodies(self) -> bool:
        """Whether messages have to be read to know which are meant."""
        return bool(self.task or self.arguments)

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
        click.option(
            "--task", metavar="NAME", help="Only messages of this task; the name may be a pattern, such as 'shop.*'."
        ),
        click.option(
            "--due-from",
            type=MOMENT,
            help="Only messages due at this time or later: ISO 8601, or from now, such as 10m.",
        ),
        click.option("--due-to", type=MOMENT, help="Only messages due earlier."),
        click.option(
            *("--arg", "arguments"),
            metavar="PATH=VALUE",
            multiple=True,
            callback=_parse_arguments,
            help="Only tasks with this argument, such as 0=17, kwargs.user.id=17 or kwargs.name='\"17\"'. The value is "
            "JSON, or else text. May be repeated: all have to hold. Arguments in a pickle are not looked into.",
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
