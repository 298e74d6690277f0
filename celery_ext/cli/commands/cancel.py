"""``delayq cancel``."""

from collections.abc import Iterable, Iterator

import click

from celery_ext.cli.broker import Target, named
from celery_ext.cli.ids import STDIN, each_id
from celery_ext.cli.options import confirm, ids_argument, json_option, yes_option
from celery_ext.cli.outcomes import exit_code, report
from celery_ext.cli.output import escaped
from celery_ext.cli.stderr import complain
from celery_ext.waiting import by_id
from celery_ext.waiting.by_id import Outcome
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.revoke import declares_chain, mark_revoked
from kombu_delayq.store import DelayStore


@click.command()
@ids_argument
@yes_option
@json_option()
@click.pass_obj
def cancel(target: Target, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Cancel waiting tasks, by id in any queue.

    What is cancelled will never run. Of a task whose delay chain runs a step just now, the chain ends with this step.
    As `celery -A app delayq cancel`, the results become REVOKED; without an app, results are left
    as they are. `-` reads the ids from the standard input, one a line.
    """
    what = f"task {escaped(ids[0])}" if len(ids) == 1 else f"{len(ids):,} tasks"
    in_stdin = STDIN in ids
    with target.store() as (connection, store):
        question = f"Cancel {'tasks' if in_stdin else what} on {named(connection)}?"
        confirm(question, yes=yes, stdin_is_read=in_stdin)
        counts = report(_cancelled(target, store, each_id(ids)), "cancelling", ids, as_json=as_json)
        if counts["cancelled"] and target.app is None:
            complain("results are left as they are: only `celery -A app delayq cancel` knows where they are")
    raise SystemExit(exit_code(counts))


def _cancelled(target: Target, store: DelayStore, ids: Iterable[str]) -> Iterator[tuple[str, Outcome]]:
    chains_in_use = target.app is not None and declares_chain(target.app)
    for each in by_id.cancel(store, ids, chains_in_use=chains_in_use):
        if target.app is not None:
            for message in each.messages:
                mark_revoked(target.app, DelayedTask(message))
        yield each.id, each.outcome
