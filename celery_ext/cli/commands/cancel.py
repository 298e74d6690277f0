"""``delayq cancel``."""

from contextlib import nullcontext

import click

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import STDIN, confirm, json_option, read_ids, yes_option
from celery_ext.cli.output import escaped, number_of, print_stderr
from celery_ext.cli.progress import act_on_ids, exit_code
from celery_ext.cli.selecting import Criteria, are_selected, change, ids_or_criteria
from celery_ext.waiting import BulkAction, places, revoke


@click.command()
@ids_or_criteria
@yes_option
@json_option()
@click.pass_obj
def cancel(
    broker: CliBroker, ids: tuple[str, ...], queues: tuple[str, ...], criteria: Criteria, yes: bool, as_json: bool
) -> None:
    """Cancel waiting tasks, by id in any queue, or all that the options select.

    A cancelled task will never run. If a step of a delay chain runs just now and the task is named by its id, the chain
    ends with this step. With `celery -A app delayq cancel` the results become REVOKED; without an app they stay as they
    are. `-` reads the ids from the standard input, one a line.

    With options it counts the tasks first, and asks. Tasks that come meanwhile stay. It may be stopped with Ctrl-C, and
    called again.
    """
    if are_selected(ids, queues, criteria):
        action, label = lambda now_ms: BulkAction("cancel"), "cancelling"
        change(broker, queues, criteria, action, question="Cancel", label=label, yes=yes, as_json=as_json)
    named = f"task {escaped(ids[0])}" if len(ids) == 1 else number_of(len(ids), "task")
    in_stdin = STDIN in ids
    with broker.store() as (connection, store):
        question = f"Cancel {'tasks' if in_stdin else named} on {broker_in_words(connection)}?"
        confirm(question, yes=yes, stdin_is_read=in_stdin)
        done = revoke.cancel(lambda: nullcontext(store), read_ids(ids), broker.app, places=places())
        outcomes = ((cancelled.id, cancelled.outcome) for cancelled in done)
        counts = act_on_ids("cancel", ids, outcomes, "cancelling", as_json=as_json)
        if counts["cancelled"] and broker.app is None:
            print_stderr("results stay as they are: only `celery -A app delayq cancel` knows the result backend")
    raise SystemExit(exit_code(counts))
