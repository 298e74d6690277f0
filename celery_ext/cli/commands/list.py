"""``delayq list``."""

import click
from celery.utils.functional import chunks

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import json_option, known_or_all, queues_argument
from celery_ext.cli.output import json_line, listing
from celery_ext.cli.selecting import Criteria, TaskSearch, criteria_options, report_unreadable
from celery_ext.waiting import sizes_of

#: Rows that are set in columns together; a long listing has its head again after so many.
ROWS = 500


@click.command("list", cls=Reader)
@queues_argument()
@criteria_options
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Most messages to print; 0 for all."
)
@json_option()
@click.pass_obj
def list_(broker: CliBroker, queues: tuple[str, ...], criteria: Criteria, limit: int, as_json: bool) -> None:
    """List waiting messages in the order of their due times.

    Without QUEUE, it lists the messages of all queues. RETRIES is the number of retries so far; with a delay chain, the
    number of its steps follows. The list is no snapshot: it may or may not show the messages that come or go meanwhile.
    """
    with broker.store() as (_, store):
        now_ms = store.now_ms()
        names = known_or_all(broker, store, queues)
        selection = criteria.selection(now_ms, names)
        found = TaskSearch(store, selection, limit or None)
        shown = 0
        for part in chunks(found.tasks("listing", printing=True), ROWS):
            shown += len(part)
            for line in (json_line(task.as_json(now_ms)) for task in part) if as_json else listing(part, now_ms):
                click.echo(line)
        if found.more:
            more = "" if selection.reads_bodies else f"{max(sum(sizes_of(store, selection)[0].values()) - shown, 1):,} "
            click.echo(f"… and {more}more", err=as_json)
        elif not shown and not as_json and names:
            click.echo("no delayed messages" + (" are selected" if any(criteria) else ""))
        report_unreadable(found.unreadable)
    if found.failed or set(queues) - set(names):
        raise SystemExit(1)
