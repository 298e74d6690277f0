"""``delayq cancel``."""

from contextlib import nullcontext

import click

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import STDIN, confirm, ids_argument, json_option, read_ids, yes_option
from celery_ext.cli.outcomes import exit_code, report
from celery_ext.cli.output import escaped
from celery_ext.cli.stderr import print_stderr
from celery_ext.waiting import revoke


@click.command()
@ids_argument
@yes_option
@json_option()
@click.pass_obj
def cancel(broker: CliBroker, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Cancel waiting tasks, by id in any queue.

    A cancelled task will never run. If a step of a delay chain runs just now, the chain ends with this step. With
    `celery -A app delayq cancel` the results become REVOKED; without an app they stay as they are. `-` reads the ids
    from the standard input, one a line.
    """
    what = f"task {escaped(ids[0])}" if len(ids) == 1 else f"{len(ids):,} tasks"
    in_stdin = STDIN in ids
    with broker.store() as (connection, store):
        question = f"Cancel {'tasks' if in_stdin else what} on {broker_in_words(connection)}?"
        confirm(question, yes=yes, stdin_is_read=in_stdin)
        done = revoke.cancel(lambda: nullcontext(store), read_ids(ids), broker.app)
        outcomes = ((cancelled.id, cancelled.outcome) for cancelled in done)
        counts = report(outcomes, "cancelling", ids, as_json=as_json)
        if counts["cancelled"] and broker.app is None:
            print_stderr("results stay as they are: only `celery -A app delayq cancel` knows the result backend")
    raise SystemExit(exit_code(counts))
