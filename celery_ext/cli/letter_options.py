"""The options that choose dead letters, and the argument that names their queues."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import duration, offer, read_ids
from celery_ext.cli.output import print_stderr
from celery_ext.dead_letters import Choice, routes
from celery_ext.dead_letters import letters as letters_of
from kombu_delayq.store import DelayStore

F = TypeVar("F", bound=Callable[..., Any])


def letter_condition_options(command: F) -> F:
    """Adds ``--task``, ``--error``, ``--older-than`` and ``--newer-than``: the conditions of a ``Choice``."""
    for option in (
        click.option(
            "--newer-than",
            "newer_than_s",
            type=duration,
            help="Only letters buried at most so long ago, such as 1h.",
        ),
        click.option(
            "--older-than",
            "older_than_s",
            type=duration,
            help="Only letters buried longer ago than this, such as 7d.",
        ),
        click.option(
            "-e", "--error", metavar="TEXT", help="Only dead letters with this text in their error, in any case."
        ),
        click.option(
            "-t",
            "--task",
            "tasks",
            metavar="NAME",
            multiple=True,
            help="Only dead letters of this task; the name may be a pattern, such as 'shop.*'. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def letter_filter_options(command: F) -> F:
    """Adds ``--id``, ``--all`` and the conditions: the arguments of ``letter_filter``."""
    command = letter_condition_options(command)
    for option in (
        click.option("-a", "--all", "every", is_flag=True, help="All dead letters."),
        click.option(
            "-i",
            "--id",
            "ids",
            metavar="ID",
            multiple=True,
            help="The dead letter with this task id; - reads ids from the standard input, one a line. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def letter_filter(ids: Sequence[str], *, every: bool, **conditions: Any) -> Choice:
    """Returns the choice that the options of ``letter_filter_options`` describe. All of them have to match.

    Raises:
        click.UsageError: There is no ``--all``, id or condition, or ``--all`` together with one; or no id on stdin.
    """
    if every == (bool(ids) or any(conditions.values())):
        raise click.UsageError(
            "which of the dead letters? Give --id, --task, --error, --older-than, --newer-than or --all"
        )
    chosen = list(read_ids(ids))
    if ids and not chosen:
        raise click.UsageError("there is no id on the standard input")
    return Choice(chosen or None, **conditions)


def dead_letter_queues(broker: CliBroker, given: Sequence[str]) -> list[str]:
    """Returns the given queues of dead letters, or else every queue that a task or the delivery limit of the app names.

    Raises:
        click.UsageError: No queue is given, and the app names none.
    """
    if given:
        return list(dict.fromkeys(given))
    if broker.app is None:
        raise click.UsageError("which queue? Give its name, or run it as `celery -A app delayq dead-letters …`")
    queues = routes.named_by(broker.app)
    if not queues:
        raise click.UsageError("which queue? No task of the app has a dead_letter_queue")
    return queues


def known_dead_letter_queues(broker: CliBroker, store: DelayStore, names: Sequence[str]) -> list[str]:
    """Returns those that are queues of dead letters, and names the others on stderr.

    A queue is one if dead letters were put into it, as Redis knows, or if the app names it. The messages of any other
    queue are tasks that workers run. An empty queue is known also when the app or the transfer workers know it.
    """
    letters, known = letters_of.queues(store), set(store.queues.names())
    if broker.app is not None:
        named = routes.named_by(broker.app)
        letters, known = letters.union(named), known.union(named, broker.app.amqp.queues)
    queues = []
    for name in names:
        held = _count(store, name)
        if held is None or name in (letters if held else known | letters):
            queues.append(name)
        elif held:
            why = "no dead letter was put into it, and no task of the app names it"
            print_stderr(f"queue {name!r} is no queue of dead letters: {why}")
        else:
            print_stderr(f"queue {name!r} holds no dead letters, and is not known")
    return queues


def _count(store: DelayStore, queue: str) -> int | None:
    try:
        return letters_of.count(store, queue)
    except ResponseError:  # a key has another type; the command will name it
        return None


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return offer(lambda: dead_letter_queues(CliBroker.of_completion(context), ()), incomplete)


def dead_letter_queues_argument(command: F) -> F:
    """Adds the argument ``[QUEUE]...``, a tuple ``queues``, which ``dead_letter_queues`` reads."""
    return click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=_complete)(command)
