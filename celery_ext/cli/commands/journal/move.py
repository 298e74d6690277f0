"""``delayq journal move``."""

import click

from celery_ext.cli.audited import audited
from celery_ext.cli.broker import CliBroker
from celery_ext.cli.commands.journal.opened import by_page, opened
from celery_ext.cli.options import json_option
from celery_ext.cli.output import json_line, number_of
from celery_ext.cli.progress import with_progress


@click.command()
@click.argument("target")
@click.option("--in-use", is_flag=True, help="Do not refuse while others write to the journal. Move it again later.")
@json_option("Print one JSON object instead.")
@click.pass_obj
def move(broker: CliBroker, target: str, in_use: bool, as_json: bool) -> None:
    """Copy the journal to the database at the URL TARGET, which has no journal yet.

    Stop workers and publishers before, and set journal_url to TARGET afterwards. The command can be ended and run
    again: it goes on where it was, and brings what has changed since. The journal itself stays as it is.
    """
    with opened(broker) as (_, store):
        from celery_ext.journal import Journal
        from celery_ext.journal.upkeep.move import move as pages_of

        stats, to = store.journal.stats(), Journal(target)
        what, of = {"journal": store.journal.url, "to": to.url}, stats.waiting + stats.offered
        with audited(store.audit, "journal move", what, of=of) as counts:
            pages = by_page(pages_of(store.journal, to, in_use=in_use), counts, "copied")
            for _ in with_progress(pages, "moving", of):
                pass
        count = counts["copied"]
        if as_json:
            click.echo(json_line({"rows": count, "target": to.url}))
        else:
            click.echo(f"{number_of(count, 'row')} moved from {store.journal.url} to {to.url}")
