"""``delayq count``."""

from collections import Counter

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import json_option, known_or_all, queues_argument
from celery_ext.cli.output import escaped, json_line, print_stderr, table
from celery_ext.cli.progress import Bar
from celery_ext.cli.selecting import Criteria, criteria_options, report_unreadable
from celery_ext.waiting import DelayedTask, Progress, Selection, Skipped, search_tasks, sizes_of
from kombu_delayq.store import WaitingStore


@click.command()
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
        found, failed = (_read if criteria.reads_bodies else _counted)(store, selection)
    rows = sorted(found.items())
    if as_json:
        for queue, number in rows:
            click.echo(json_line({"queue": queue, "count": number}))
    else:
        total = [("total", f"{found.total():,}")] if len(rows) != 1 else []
        shown = [*((escaped(queue), f"{number:,}") for queue, number in rows), *total]
        click.echo("\n".join(table(("QUEUE", "COUNT"), shown, right={1})))
    if failed or set(queues) - set(names):
        raise SystemExit(1)


def _counted(store: WaitingStore, selection: Selection) -> tuple[Counter[str], bool]:
    sizes, skipped = sizes_of(store, selection)
    found: Counter[str] = Counter()
    for delayed, number in sizes.items():
        found[delayed.queue] += number
    for one in skipped:
        print_stderr(f"queue {one.queue!r}: {one.error}")
    return found, bool(skipped)


def _read(store: WaitingStore, selection: Selection) -> tuple[Counter[str], bool]:
    found: Counter[str] = Counter()
    failed, unreadable = False, 0
    with Bar("counting") as bar:
        for event in search_tasks(store, selection):
            match event:
                case DelayedTask():
                    found[event.queue] += 1
                case Progress(looked, of, unreadable):
                    bar(looked, of)
                case Skipped(queue, error):
                    failed = True
                    print_stderr(f"queue {queue!r}: {error}")
    report_unreadable(unreadable)
    return found, failed
