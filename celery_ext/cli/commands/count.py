"""``delayq count``."""

from collections import Counter

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import json_option, known_or_all, queues_argument
from celery_ext.cli.output import escaped, fit_table, json_line
from celery_ext.cli.selecting import Criteria, TaskSearch, criteria_options, report_skipped, report_unreadable
from celery_ext.waiting import sizes_of


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
