"""``delayq reschedule``."""

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import Moment, duration, json_option, moment, read_ids, yes_option
from celery_ext.cli.output import when
from celery_ext.cli.progress import WORDS, act_on_ids, exit_code
from celery_ext.cli.selecting import Criteria, are_selected, change, ids_or_criteria
from celery_ext.waiting import BulkAction, by_id
from kombu_delayq.message import iso_of


@click.command()
@ids_or_criteria
@click.option("--eta", type=moment, help="New due time: ISO 8601, or from now, such as 10m.")
@click.option("--countdown", type=duration, help="Instead of --eta: s from now, or a duration such as 10m.")
@yes_option
@json_option()
@click.pass_obj
def reschedule(
    broker: CliBroker,
    ids: tuple[str, ...],
    queues: tuple[str, ...],
    criteria: Criteria,
    eta: Moment | None,
    countdown: float | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Change when waiting tasks are due, by id in any queue, or all that the options select.

    A past time sends the tasks to their queues now. `-` reads the ids from the standard input, one a line.

    With options it counts the tasks first, and asks; all become due at the same time. Tasks that come meanwhile stay as
    they are. It may be stopped with Ctrl-C, and called again.
    """
    if (eta is None) == (countdown is None):
        raise click.UsageError("give either --eta or --countdown")

    def due_at(now_ms: float) -> float:
        return eta.at(now_ms) if eta is not None else now_ms + (countdown or 0) * 1000

    words = {**WORDS, "transferred": "due already, sent to be run"}
    if are_selected(ids, queues, criteria):
        change(
            broker,
            queues,
            criteria,
            lambda now_ms: BulkAction("reschedule", due_at(now_ms)),
            question="Reschedule",
            label="rescheduling",
            yes=yes,
            as_json=as_json,
            words=words,
        )
    with broker.store() as (_, store):
        now_ms = store.now_ms()
        due_ms = due_at(now_ms)
        counts = act_on_ids(
            "reschedule",
            ids,
            by_id.reschedule(store, read_ids(ids), due_ms),
            "rescheduling",
            as_json=as_json,
            words={**words, "rescheduled": f"rescheduled to {when(due_ms, now_ms)}"},
            due=iso_of(due_ms),
        )
    raise SystemExit(exit_code(counts))
