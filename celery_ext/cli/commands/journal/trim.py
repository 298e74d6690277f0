"""``delayq journal trim``."""

import click

from celery_ext.cli.audited import audited
from celery_ext.cli.broker import CliBroker
from celery_ext.cli.commands.journal.opened import by_page, opened
from celery_ext.cli.options import confirm, json_option, yes_option
from celery_ext.cli.output import json_line, number_of
from celery_ext.cli.progress import with_progress
from celery_ext.delays.durations import in_words


@click.command()
@click.option("--dry-run", is_flag=True, help="Change nothing, and count what would be deleted.")
@yes_option
@json_option("Print one JSON object instead.")
@click.pass_obj
def trim(broker: CliBroker, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete rows of messages that have left Redis, once they are older than the option journal_retention.

    The promoter does this by itself every few seconds. Rows that only the journal has, and those that Redis may have
    lost, stay.
    """
    with opened(broker) as (_, store):
        retention_s = store.options.journal_retention
        count = store.journal.count_trimmable(retention_s * 1000)
        if not dry_run and count:
            age = in_words(retention_s, plain=True)
            confirm(
                f"Delete {number_of(count, 'row')} of messages that left more than {age} ago from {store.journal.url}?",
                yes=yes,
            )
            from celery_ext.journal.upkeep import trim as pages_of

            with audited(store.audit, "journal trim", {"journal": store.journal.url}, of=count) as counts:
                for _ in with_progress(by_page(pages_of(store), counts, "deleted"), "trimming", count):
                    pass
            count = counts["deleted"]
        if as_json:
            click.echo(json_line({"rows": count, "dry_run": dry_run}))
        else:
            click.echo(f"{number_of(count, 'row')} {'would be ' if dry_run else ''}deleted")
