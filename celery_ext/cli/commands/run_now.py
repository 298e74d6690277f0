"""``delayq run-now``."""

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import ids_argument, json_option, read_ids
from celery_ext.cli.outcomes import exit_code, report
from celery_ext.waiting import by_id


@click.command("run-now")
@ids_argument
@json_option()
@click.pass_obj
def run_now(broker: CliBroker, ids: tuple[str, ...], as_json: bool) -> None:
    """Send waiting tasks to their queues now, by id in any queue.

    `-` reads the ids from the standard input, one a line.
    """
    with broker.store() as (_, store):
        counts = report(by_id.run_now(store, read_ids(ids)), "sending", ids, as_json=as_json)
    raise SystemExit(exit_code(counts))
