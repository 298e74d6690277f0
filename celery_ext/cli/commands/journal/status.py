"""``delayq journal status``."""

import json

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.commands.journal.opened import opened
from celery_ext.cli.options import json_option
from celery_ext.cli.status import journal
from celery_ext.connection import look_at_journal


@click.command()
@json_option("Print one JSON object instead.")
@click.pass_obj
def status(broker: CliBroker, as_json: bool) -> None:
    """Show what waits in the journal, who promotes it, how late that is, and what Redis has lost.

    `delayq status` shows the same above its queues. Exit code 1 means that the database does not answer.
    """
    with opened(broker, hurried=True) as (_, store):
        _, state = look_at_journal(store)
        assert state is not None  # noqa: S101  # it has a journal
        values = journal.values_of(state, store.now_ms(), store.options.journal_lead)
        click.echo(json.dumps(values, indent=2) if as_json else "\n".join(journal.lines(values)))
    if values["error"]:
        raise SystemExit(1)
