"""Changes all waiting messages that the options of a command select: counts them, asks, and reports."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial, wraps
from math import inf
from typing import Any, NamedTuple, TypeVar

import click
from celery import Celery

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import Moment, complete_queue, confirm, ids_argument, known_queues, moment
from celery_ext.cli.output import escaped, json_line, local_time, number_of, print_stderr
from celery_ext.cli.progress import WORDS, Bar, summed_up
from celery_ext.cli.signals import stoppable
from celery_ext.waiting import (
    Argument,
    Bulk,
    BulkAction,
    BulkOutcome,
    DelayedTask,
    Done,
    Progress,
    Selection,
    Skipped,
    Snapshot,
    audited_bulk,
    revoke,
    search_tasks,
    take_snapshot,
)
from kombu_delayq.store import DelayStore

F = TypeVar("F", bound=Callable[..., Any])


class Criteria(NamedTuple):
    """What was given of the options."""

    task: str | None
    due_from: Moment | None
    due_to: Moment | None
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
        click.option(
            "--task", metavar="NAME", help="Only messages of this task; the name may be a pattern, such as 'shop.*'."
        ),
        click.option(
            "--due-from",
            type=moment,
            help="Only messages due at this time or later: ISO 8601, or from now, such as 10m.",
        ),
        click.option("--due-to", type=moment, help="Only messages due earlier."),
        click.option(
            "--arg",
            "arguments",
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


_NOT_DONE: tuple[BulkOutcome, ...] = ("unreadable", "too_long")


def ids_or_criteria(command: F) -> F:
    """Adds the argument ``ID...``, and instead of it ``--queue`` and the options of ``criteria_options``."""
    option = click.option(
        "-q",
        "--queue",
        "queues",
        metavar="QUEUE",
        multiple=True,
        shell_complete=complete_queue,
        help="Instead of ids: all tasks of this queue that the next options let through. May be repeated.",
    )
    return ids_argument(required=False)(option(criteria_options(command)))


def are_selected(ids: tuple[str, ...], queues: tuple[str, ...], criteria: Criteria) -> bool:
    """Whether a command is to act on what its options select, and not on ids.

    Raises:
        click.UsageError: There are both, or none.
    """
    selects = bool(queues) or any(criteria)
    if selects and ids:
        raise click.UsageError("give either ids, or --queue, --task, --due-from, --due-to and --arg")
    if not selects and not ids:
        raise click.UsageError("which tasks? Give ids, or --queue, --task, --due-from, --due-to or --arg")
    return selects


def change(
    broker: CliBroker,
    queues: tuple[str, ...],
    criteria: Criteria,
    action: Callable[[float], BulkAction],
    *,
    question: str,
    label: str,
    yes: bool,
    as_json: bool,
    words: Mapping[Any, str] = WORDS,
) -> None:
    """Counts all selected messages, asks, acts on them, prints what became of them, and ends the command.

    Args:
        broker: The broker of the command.
        queues: Names of queues; none for all.
        criteria: The other conditions.
        action: Returns what to do, given Redis's clock in ms.
        question: What is asked first, such as ``Cancel``.
        label: Label of the progress bar, such as ``cancelling``.
        yes: As of ``confirm``.
        as_json: Whether to print JSON.
        words: Each outcome in words.
    """
    with broker.store() as (connection, store):
        now_ms = store.now_ms()
        known = known_queues(broker, store, queues) if queues else None
        selection = criteria.selection(now_ms, known)
        bulk_action = action(now_ms)
        matched = _counted(store, selection)
        failed = bool(matched.skipped) or len(known or ()) < len(set(queues))
        if not len(matched):
            print_stderr("no waiting task is selected")
            raise SystemExit(1)
        tasks = number_of(len(matched), "task")
        confirm(f"{question} {tasks} ({in_words(selection, queues)}) on {broker_in_words(connection)}?", yes=yes)
        bulk = Bulk(matched, bulk_action)
        ended = _run(store, bulk, label, broker.app)
        # Leaving the store ends the command if anything was logged as an error, such as a note that Redis refused.
        _report(bulk, words, ended=ended, as_json=as_json, knows_results=broker.app is not None)
    raise SystemExit(int(failed or not ended or any(bulk.outcomes[outcome] for outcome in _NOT_DONE)))


def _report(bulk: Bulk, words: Mapping[Any, str], *, ended: bool, as_json: bool, knows_results: bool) -> None:
    counts = bulk.outcomes
    if as_json:
        click.echo(json_line({"selected": bulk.of, "ended": ended, "outcomes": dict(counts)}))
    else:
        click.echo(summed_up(counts, words) or "none")
    if counts["cancelled"] and not knows_results:
        print_stderr("results stay as they are: only `celery -A app delayq cancel` knows the result backend")
    if not ended:
        print_stderr(f"stopped after {bulk.done:,} of {bulk.of:,}: call it again for the rest, which is as it was")


def in_words(selection: Selection, queues: tuple[str, ...] = ()) -> str:
    """Returns the conditions of a filter for a question, with the queues as they were given."""
    shown = replace(selection, queues=None).as_json()
    parts = [f"queue {escaped(name)}" for name in queues] or ["all queues"]
    parts += [f"task {escaped(selection.task)}"] if selection.task else []
    parts += [f"due from {local_time(shown['from'])}"] if "from" in shown else []
    parts += [f"due before {local_time(shown['to'])}"] if "to" in shown else []
    return ", ".join([*parts, *map(escaped, shown.get("arguments", ()))])


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


def _counted(store: DelayStore, selection: Selection) -> Snapshot:
    with stoppable() as stop, Bar("counting") as bar:
        matched = take_snapshot(store, selection, progress=lambda found: bar(found.looked, found.of), stop=stop)
    if matched is None:
        print_stderr("stopped; nothing has changed")
        raise SystemExit(1)
    report_skipped(matched.skipped)
    report_unreadable(matched.unreadable)
    return matched


def _run(store: DelayStore, bulk: Bulk, label: str, app: Celery | None) -> bool:
    try:
        with stoppable() as stop, Bar(label, bulk.of) as bar, audited_bulk(bulk):
            return bulk.run(store, progress=bar, stop=stop, announce=partial(revoke.announce_cancelled, app))
    except Exception:
        done: Counter[BulkOutcome] = bulk.outcomes
        print_stderr(
            f"{done.total():,} of {number_of(bulk.of, 'task')} done when it failed: call it again for the rest"
        )
        raise
