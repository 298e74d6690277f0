"""``delayq list``."""

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf

import click
from celery.utils.functional import chunks
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import due_options, json_option
from celery_ext.cli.output import json_line, summary
from celery_ext.cli.output import listing as listing_of
from celery_ext.cli.param_types import Moment
from celery_ext.cli.progress import with_progress
from celery_ext.cli.queues import known_queues, queues_argument
from celery_ext.cli.stderr import print_stderr
from celery_ext.waiting import by_id
from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.store import WaitingStore
from kombu_delayq.store.types import Waiting

#: Rows that are set in columns together; a long listing has its head again after so many.
ROWS = 500


@click.command("list")
@queues_argument()
@due_options
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Most messages to print; 0 for all."
)
@json_option()
@click.pass_obj
def list_(
    broker: CliBroker,
    queues: tuple[str, ...],
    due_after: Moment | None,
    due_before: Moment | None,
    limit: int,
    as_json: bool,
) -> None:
    """List waiting messages in the order of their due times.

    Without QUEUE, it lists the messages of all queues. RETRIES is the number of retries so far; with a delay chain, the
    number of its steps follows. The list is no snapshot: it may or may not show the messages that come or go meanwhile.
    """
    with broker.store() as (_, store):
        listing = _Listing(store, due_after, due_before, limit or None)
        names = known_queues(broker, store, queues) if queues else store.queues.names()
        messages = with_progress(listing.messages(names), "listing", limit or listing.count(names), printing=True)
        shown = 0
        for part in chunks(map(DelayedTask, messages), ROWS):
            shown += len(part)
            for line in _json(part, listing) if as_json else _text(part, listing):
                click.echo(line)
        more = listing.count(names) - shown if limit and shown == limit else 0
        if more > 0:
            click.echo(f"… and {more:,} more", err=as_json)
        elif not shown and not as_json and names:
            click.echo("no delayed messages")
    if listing.failed or set(queues) - set(names):
        raise SystemExit(1)


class _Listing:
    """The messages of several queues between two due times, in one order."""

    def __init__(
        self, store: WaitingStore, due_after: Moment | None, due_before: Moment | None, limit: int | None
    ) -> None:
        self.now_ms = store.now_ms()
        self.failed = False
        self._store = store
        self._limit = limit
        self._from_ms = due_after.at(self.now_ms) if due_after else -inf
        self._to_ms = due_before.at(self.now_ms) if due_before else inf

    def messages(self, queues: Iterable[str]) -> Iterator[Waiting]:
        return islice(heapq.merge(*map(self._of, queues), key=lambda message: message.due_ms), self._limit)

    def count(self, queues: Iterable[str]) -> int:
        return sum(map(self._count, queues))

    def _of(self, queue: str) -> Iterator[Waiting]:
        try:
            yield from by_id.browse(self._store, queue, self._from_ms, self._to_ms, self._limit)
        except ResponseError as error:  # such as for a key of another type; the other queues go on
            self.failed = True
            print_stderr(f"queue {queue!r}: {error}")

    def _count(self, queue: str) -> int:
        try:
            return self._store.scan.count(queue, self._from_ms, self._to_ms)
        except ResponseError:  # _of reports it
            return 0


def _json(tasks: list[DelayedTask], listing: _Listing) -> Iterator[str]:
    return (json_line(summary(task, listing.now_ms)) for task in tasks)


def _text(tasks: list[DelayedTask], listing: _Listing) -> list[str]:
    return listing_of(tasks, listing.now_ms)
