"""The tables of the journal. Knows SQL, and no Redis."""

from celery_ext.journal.table.journal import Journal
from celery_ext.journal.table.rows import WAITING, Addition, Row

__all__ = ["WAITING", "Addition", "Journal", "Row"]
