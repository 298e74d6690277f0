"""``delayq status``."""

import json

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import json_option
from celery_ext.cli.param_types import DURATION
from celery_ext.cli.queues import queues_argument
from celery_ext.cli.status.report import Report
from celery_ext.cli.status.report import report as report_of
from celery_ext.cli.status.text import text
from celery_ext.cli.status.watch import watch

#: How often ``--watch`` looks, in s: by default, and at most.
EVERY_S, LEAST_S = 2.0, 0.1


@click.command()
@queues_argument()
@json_option("Print one JSON object instead; with --watch, one a line.")
@click.option(
    "--watch",
    "every_s",
    type=DURATION,
    is_flag=False,
    flag_value=f"{EVERY_S:g}",
    metavar="[SECONDS]",
    help=f"Look again every so often, {EVERY_S:g} s if no time is given, until Ctrl-C. Write --watch=5 before a QUEUE.",
)
@click.pass_obj
def status(broker: CliBroker, queues: tuple[str, ...], as_json: bool, every_s: float | None) -> None:
    """Show each queue's delayed and ready messages, what is overdue, who transfers, and who consumes.

    Without QUEUE, it shows the queues that hold or held delayed messages and those of the app, all queues with dead
    letters, and all consumers. DELAYED messages wait in the store, overdue ones among them; READY messages wait for a
    consumer. CONSUMERS are those that are known: not those on the stock transport or with `consume="brpop"`. IN HAND
    are messages that a consumer has and has not acknowledged, of all its queues. With a journal, IN JOURNAL are
    those of the DELAYED messages that only the journal's database has. On a Redis Cluster, SLOT is the queue's hash
    slot and NODE the primary that has it; the nodes follow in a table of their own.
    """
    if every_s is None:
        report = _report(broker, queues)
        click.echo(json.dumps(report.values, indent=2) if as_json else _text(report, broker, queues))
        if report.failed:
            raise SystemExit(1)
        return
    if every_s < LEAST_S:
        raise click.UsageError(f"--watch looks every {LEAST_S:g} s at most")

    def look() -> str:
        report = _report(broker, queues, hurried=True)
        return json.dumps(report.values) if as_json else _text(report, broker, queues) + "\n"

    watch(look, every_s, in_place=not as_json)


def _report(broker: CliBroker, queues: tuple[str, ...], *, hurried: bool = False) -> Report:
    with broker.store(hurried=hurried) as (connection, store):
        return report_of(broker, connection, store, queues)


def _text(report: Report, broker: CliBroker, queues: tuple[str, ...]) -> str:
    return text(report.values, named=bool(queues), app=broker.app is not None)
