"""``delayq list``."""

from collections.abc import Iterator

import click
from celery.utils.functional import chunks

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import json_option, known_or_all, queues_argument
from celery_ext.cli.output import json_line, listing, print_stderr
from celery_ext.cli.progress import Bar
from celery_ext.cli.selecting import Criteria, criteria_options, report_unreadable
from celery_ext.waiting import DelayedTask, Done, Progress, Selection, Skipped, search_tasks, sizes_of
from kombu_delayq.store import WaitingStore

#: Rows that are set in columns together; a long listing has its head again after so many.
ROWS = 500


@click.command("list")
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
        found = _Listing(store, criteria.selection(now_ms, names), limit or None)
        shown = 0
        for part in chunks(found.tasks(), ROWS):
            shown += len(part)
            for line in _json(part, now_ms) if as_json else listing(part, now_ms):
                click.echo(line)
        if found.more:
            more = "" if criteria.reads_bodies else f"{max(found.count() - shown, 1):,} "
            click.echo(f"… and {more}more", err=as_json)
        elif not shown and not as_json and names:
            click.echo("no delayed messages" + (" are selected" if criteria.given else ""))
        report_unreadable(found.unreadable)
    if found.failed or set(queues) - set(names):
        raise SystemExit(1)


class _Listing:
    """The selected messages of several queues, in one order."""

    def __init__(self, store: WaitingStore, selection: Selection, limit: int | None) -> None:
        self.failed = self.more = False
        self.unreadable = 0
        self._store, self._selection, self._limit = store, selection, limit

    def tasks(self) -> Iterator[DelayedTask]:
        with Bar("listing", printing=True) as bar:
            for event in search_tasks(self._store, self._selection, limit=self._limit):
                match event:
                    case DelayedTask():
                        yield event
                    case Progress(looked, of, unreadable):
                        self.unreadable = unreadable
                        bar(looked, of)
                    case Skipped(queue, error):  # such as for a key of another type; the other queues go on
                        self.failed = True
                        print_stderr(f"queue {queue!r}: {error}")
                    case Done(cursor):
                        self.more = cursor is not None

    def count(self) -> int:
        sizes, _ = sizes_of(self._store, self._selection)
        return sum(sizes.values())


def _json(tasks: list[DelayedTask], now_ms: float) -> Iterator[str]:
    return (json_line(task.as_json(now_ms)) for task in tasks)
