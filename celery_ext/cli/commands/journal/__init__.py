"""``delayq journal``: looks after the journal, the SQL database beside Redis."""

import click

from celery_ext.cli.commands.journal.check import check
from celery_ext.cli.commands.journal.restore import restore
from celery_ext.cli.commands.journal.run import run
from celery_ext.cli.commands.journal.status import status
from celery_ext.cli.commands.journal.trim import trim


@click.group()
def journal() -> None:
    """Look after the journal: the database with the messages that are due late, or with all.

    Its URL is the transport option journal_url of the app, or `delayq --journal-url URL journal …`.
    """


for _command in (run, status, check, restore, trim):
    journal.add_command(_command)
