"""``delayq list`` and ``delayq count``."""

from collections import Counter

import click
from celery.utils.functional import chunks

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import json_option, known_or_all, queues_argument
from celery_ext.cli.output import escaped, fit_table, json_line, listing
from celery_ext.cli.selecting import Criteria, TaskSearch, criteria_options, report_skipped, report_unreadable
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


@click.command(cls=Reader)
@queues_argument()
@criteria_options
@json_option()
@click.pass_obj
def count(broker: CliBroker, queues: tuple[str, ...], criteria: Criteria, as_json: bool) -> None:
    """Count waiting messages, queue by queue.

    Without QUEUE, it counts those of all queues. With --task or --arg it
    reads all messages of the queues and the range of due times.
    """
    with broker.store() as (_, store):
        names = known_or_all(broker, store, queues)
        selection = criteria.selection(store.now_ms(), names)
        found: Counter[str] = Counter()
        if selection.reads_bodies:
            search = TaskSearch(store, selection)
            found.update(task.queue for task in search.tasks("counting", printing=False))
            report_unreadable(search.unreadable)
            failed = search.failed
        else:
            sizes, skipped = sizes_of(store, selection)
            for delayed, number in sizes.items():
                found[delayed.queue] += number
            report_skipped(skipped)
            failed = bool(skipped)
    rows = sorted(found.items())
    if as_json:
        for queue, number in rows:
            click.echo(json_line({"queue": queue, "count": number}))
    else:
        total = [("total", f"{found.total():,}")] if len(rows) != 1 else []
        shown = [*((escaped(queue), f"{number:,}") for queue, number in rows), *total]
        click.echo("\n".join(fit_table(("QUEUE", "COUNT"), shown, right={1})))
    if failed or set(queues) - set(names):
        raise SystemExit(1)
