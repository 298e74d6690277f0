"""Deletes rows of messages that have left for their queue long ago."""

from collections.abc import Iterator

from celery_ext.journal.store import JournaledStore


def trim(store: JournaledStore) -> Iterator[int]:
    """Deletes rows of messages that left Redis more than ``journal_retention`` ago. Rows that may be lost stay.

    Yields:
        The number of rows deleted, page by page.
    """
    retention_ms = store.options.journal_retention * 1000
    while deleted := store.journal.trim(retention_ms):
        yield deleted
