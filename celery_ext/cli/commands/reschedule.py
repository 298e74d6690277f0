"""``delayq reschedule``."""

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import ids_argument, json_option, read_ids
from celery_ext.cli.outcomes import WORDS, exit_code, report
from celery_ext.cli.output import when
from celery_ext.cli.param_types import DURATION, MOMENT, Moment
from celery_ext.waiting import by_id


@click.command()
@ids_argument
@click.option("--eta", type=MOMENT, help="New due time: ISO 8601, or from now, such as 10m.")
@click.option("--countdown", type=DURATION, help="Instead of --eta: s from now, or a duration such as 10m.")
@json_option()
@click.pass_obj
def reschedule(
    broker: CliBroker, ids: tuple[str, ...], eta: Moment | None, countdown: float | None, as_json: bool
) -> None:
    """Change when waiting tasks are due, by id in any queue.

    A past time sends the tasks to their queues now. `-` reads the ids from the standard input, one a line.
    """
    if (eta is None) == (countdown is None):
        raise click.UsageError("give either --eta or --countdown")
    with broker.store() as (_, store):
        now_ms = store.now_ms()
        due_ms = eta.at(now_ms) if eta is not None else now_ms + (countdown or 0) * 1000
        words = {
            **WORDS,
            "rescheduled": f"rescheduled to {when(due_ms, now_ms)}",
            "transferred": "due already, sent to its queue",
        }
        outcomes = by_id.reschedule(store, read_ids(ids), due_ms)
        counts = report(outcomes, "rescheduling", ids, as_json=as_json, words=words)
    raise SystemExit(exit_code(counts))
