"""Finding and changing messages by their ids, in Redis and in the journal."""

from collections.abc import Sequence

from celery_ext.journal.table import Journal
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.lookup import Lookup
from kombu_delayq.store.types import Waiting


class JournaledLookup(Lookup):
    """Finds waiting messages by their ids wherever they wait.

    Args:
        client: As of ``Lookup``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, journal: Journal) -> None:
        super().__init__(client)
        self._journal = journal

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids; see ``Lookup.get``."""
        rows = self._journal.get(ids)  # before Redis: a message that is promoted meanwhile is seen there
        found = super().get(queues, ids)
        for row in rows:
            known = found.setdefault(row.id, [])
            if all(one.body != row.body for one in known):
                known.append(row.waiting)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found
