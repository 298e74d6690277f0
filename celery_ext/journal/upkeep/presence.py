"""Whether Redis has the messages of rows."""

from collections.abc import Sequence

from celery_ext.journal.store import JournaledStore
from celery_ext.journal.table import Row

#: Most ids that are looked up in one call.
IDS = 200


def rows_in_redis(store: JournaledStore, queue: str, rows: Sequence[Row]) -> set[int]:
    """Returns the numbers of those rows of a queue whose message waits in Redis, byte for byte."""
    found: set[int] = set()
    for at in range(0, len(rows), IDS):
        part = rows[at : at + IDS]
        waiting = store.redis_alone.lookup.get([queue], list(dict.fromkeys(row.id for row in part)))
        for row in part:
            if any(one.body == row.body and one.priority == row.priority for one in waiting.get(row.id, ())):
                found.add(row.seq)
    return found
