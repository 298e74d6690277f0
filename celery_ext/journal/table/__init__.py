"""The tables of the journal. Knows SQL, and no Redis."""

from celery_ext.journal.table.counts import Sizes
from celery_ext.journal.table.epochs import Epoch
from celery_ext.journal.table.facts import Watermarks
from celery_ext.journal.table.journal import Journal, Stats
from celery_ext.journal.table.messages import Purged
from celery_ext.journal.table.rows import MOST_BYTES, Addition, Row
from celery_ext.journal.table.schema import WAITING

__all__ = ["MOST_BYTES", "WAITING", "Addition", "Epoch", "Journal", "Purged", "Row", "Sizes", "Stats", "Watermarks"]
