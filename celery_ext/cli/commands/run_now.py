"""``delayq run-now``."""

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import json_option, read_ids, yes_option
from celery_ext.cli.progress import act_on_ids, exit_code
from celery_ext.cli.selecting import Criteria, are_selected, change, ids_or_criteria
from celery_ext.waiting import BulkAction, by_id


@click.command("run-now")
@ids_or_criteria
@yes_option
@json_option()
@click.pass_obj
def run_now(
    broker: CliBroker, ids: tuple[str, ...], queues: tuple[str, ...], criteria: Criteria, yes: bool, as_json: bool
) -> None:
    """Send waiting tasks to their queues now, by id in any queue, or all that the options select.

    `-` reads the ids from the standard input, one a line.

    With options it counts the tasks first, and asks. Tasks that come meanwhile go on waiting. It may be stopped with
    Ctrl-C, and called again.
    """
    if are_selected(ids, queues, criteria):
        action, label = lambda now_ms: BulkAction("run_now"), "sending"
        change(broker, queues, criteria, action, question="Run now", label=label, yes=yes, as_json=as_json)
    with broker.store() as (_, store):
        counts = act_on_ids("run", ids, by_id.run_now(store, read_ids(ids)), "sending", as_json=as_json)
    raise SystemExit(exit_code(counts))
