"""Opens the journal of a command, and says what is missing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import click
from kombu.connection import Connection

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.output import escaped

if TYPE_CHECKING:
    from celery_ext.journal import JournaledStore

NO_JOURNAL = (
    "there is no journal: set the transport option journal_url of the app, or give `delayq --journal-url URL journal …`"
)


@contextmanager
def opened(broker: CliBroker, *, hurried: bool = False) -> "Iterator[tuple[Connection, JournaledStore]]":
    """Connects to Redis, and yields the connection and a store with a journal. An error ends the command in words.

    Args:
        broker: The broker of the command.
        hurried: Whether every answer of Redis has a time limit.
    """
    with broker.store(hurried=hurried) as (connection, store):
        found: Any = store
        if getattr(found, "journal", None) is None:
            raise click.ClickException(NO_JOURNAL)
        found.journal.let_take_time()
        yield connection, found


def by_page(pages: Iterable[int], counts: Counter[str], outcome: str) -> Iterator[None]:
    """Counts the rows of each page once it is done, and yields once a row, for a progress bar."""
    for rows in pages:
        counts[outcome] += rows
        yield from repeat(None, rows)


def refuse_other(connection: Connection, store: "JournaledStore") -> None:
    """Ends the command if Redis belongs to another journal than this one."""
    marker = store.promotion.marker()
    if marker is not None and marker.id != store.journal.id:
        raise click.ClickException(
            escaped(
                f"{connection.as_uri()} belongs to another journal than {store.journal.url}: is it the right "
                "broker, and the right database?"
            )
        )
