"""``delayq dead-letters``, and its ``list``. ``replay`` and ``drop`` are in ``dead_letters_replay.py``."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import click
from celery.utils.functional import chunks
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.commands.dead_letters_replay import drop, replay
from celery_ext.cli.letter_options import (
    dead_letter_queues,
    dead_letter_queues_argument,
    is_of,
    known_dead_letter_queues,
    letter_task_option,
)
from celery_ext.cli.options import json_option
from celery_ext.cli.output import (
    ARGUMENTS_WIDTH,
    arguments,
    cell,
    escaped,
    fit_table,
    json_line,
    number_of,
    task_name,
    when,
)
from celery_ext.cli.progress import with_progress
from celery_ext.cli.stderr import QuietGroup, print_stderr
from celery_ext.dead_letters import replay as letters_of
from celery_ext.dead_letters.letter import DeadLetter

LISTING_HEAD = ("BURIED", "TASK", "ID", "FROM", "RETRIES", "ERROR", "ARGUMENTS")
#: Rows that are set in columns together.
ROWS = 500


@click.group("dead-letters", cls=QuietGroup, readers=("list",))
def dead_letters() -> None:
    """Look at tasks that have failed for good, replay them, or drop them.

    A task with a `dead_letter_queue` goes there when it has no retry left, or after any final failure, as its
    `dead_letter_on` says. QUEUE is such a queue. With `celery -A app delayq dead-letters` you can leave out QUEUE; then
    the command looks at every queue that a task of the app names.
    """


@dead_letters.command("list")
@dead_letter_queues_argument
@letter_task_option
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Most dead letters of a queue to print; 0 for all.",
)
@json_option()
@click.pass_obj
def list_(broker: CliBroker, queues: tuple[str, ...], tasks: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List dead letters, of each priority the oldest first.

    FROM is the routing key by which the task came to its worker. Messages that were not put there by kombu-delayq have
    no reason.
    """
    with broker.store() as (_, store):
        names = dead_letter_queues(broker, queues)
        known = known_dead_letter_queues(broker, store, names)
        failed = len(known) < len(names)
        for queue in known:
            try:
                total = sum(store.letters.lists(queue).values())
                wanted = (letter for letter in letters_of.browse(store, queue) if is_of(letter, tasks))
                found = with_progress(islice(wanted, limit or None), "listing", None if tasks else total, printing=True)
                _print(queue, found, total, as_json=as_json, now_ms=store.now_ms())
            except ResponseError as error:  # such as for a key of another type; the other queues go on
                failed = True
                print_stderr(f"queue {queue!r}: {error}")
    if failed:
        raise SystemExit(1)


def _print(queue: str, found: Iterable[DeadLetter], total: int, *, as_json: bool, now_ms: float) -> None:
    shown = 0
    if not as_json:
        click.echo(f"queue {escaped(queue)}: {number_of(total, 'dead letter')}")
    for part in chunks(iter(found), ROWS):
        shown += len(part)
        rows = [_row(letter, now_ms) for letter in part]
        lines = map(json_line, map(_fields, part)) if as_json else fit_table(LISTING_HEAD, rows, right={4}, title=2)
        click.echo("\n".join(lines))
    if shown < total and shown:
        click.echo(f"… {shown:,} of {total:,} shown", err=as_json)


def _fields(letter: DeadLetter) -> dict[str, Any]:
    task = letter.task
    return {
        "id": letter.id,
        "task": letter.name,
        "dead_letter_queue": letter.buried_in,
        "reason": letter.reason,
        "error": letter.error,
        "at": letter.at and letter.at.isoformat(),
        "retries": letter.retries,
        "worker": letter.worker,
        "exchange": letter.exchange,
        "routing_key": letter.routing_key,
        "priority": letter.priority,
        "delay_chain": task.delay_chain,
        "argsrepr": task.argsrepr,
        "kwargsrepr": task.kwargsrepr,
    }


def _row(letter: DeadLetter, now_ms: float) -> list[str]:
    at = letter.at
    return [
        when(at.timestamp() * 1000, now_ms) if at is not None else "-",
        cell(task_name(letter.task)),
        cell(letter.id),
        cell(letter.routing_key or "-"),
        str(letter.retries) if letter.reason is not None else "-",
        cell(letter.error or letter.reason or "-", 60),
        cell(arguments(letter.task), ARGUMENTS_WIDTH),
    ]


for _command in (replay, drop):
    dead_letters.add_command(_command)
