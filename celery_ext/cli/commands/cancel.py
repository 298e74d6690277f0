"""``delayq cancel``."""

from collections.abc import Iterable, Iterator

import click

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import STDIN, confirm, ids_argument, json_option, read_ids, yes_option
from celery_ext.cli.outcomes import exit_code, report
from celery_ext.cli.output import escaped
from celery_ext.cli.stderr import print_stderr
from celery_ext.waiting import by_id
from celery_ext.waiting.by_id import Outcome
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.revoke import declares_chain, mark_revoked
from kombu_delayq.store import WaitingStore


@click.command()
@ids_argument
@yes_option
@json_option()
@click.pass_obj
def cancel(broker: CliBroker, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Cancel waiting tasks, by id in any queue.

    What is cancelled will never run. Of a task whose delay chain runs a step just now, the chain ends with this step.
    As `celery -A app delayq cancel`, the results become REVOKED; without an app, results are left
    as they are. `-` reads the ids from the standard input, one a line.
    """
    what = f"task {escaped(ids[0])}" if len(ids) == 1 else f"{len(ids):,} tasks"
    in_stdin = STDIN in ids
    with broker.store() as (connection, store):
        question = f"Cancel {'tasks' if in_stdin else what} on {broker_in_words(connection)}?"
        confirm(question, yes=yes, stdin_is_read=in_stdin)
        counts = report(_cancelled(broker, store, read_ids(ids)), "cancelling", ids, as_json=as_json)
        if counts["cancelled"] and broker.app is None:
            print_stderr("results are left as they are: only `celery -A app delayq cancel` knows where they are")
    raise SystemExit(exit_code(counts))


def _cancelled(broker: CliBroker, store: WaitingStore, ids: Iterable[str]) -> Iterator[tuple[str, Outcome]]:
    chains_in_use = broker.app is not None and declares_chain(broker.app)
    for each in by_id.cancel(store, ids, chains_in_use=chains_in_use):
        if broker.app is not None:
            for message in each.messages:
                mark_revoked(broker.app, DelayedTask(message))
        yield each.id, each.outcome
