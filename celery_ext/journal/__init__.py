"""The journal: delayed messages in an SQL database beside Redis, for what is due late, and for a Redis that is lost."""

from celery_ext.journal.journal import Journal
from celery_ext.journal.store import JournaledStore
from celery_ext.journal.worker import JournalWorker

__all__ = ["Journal", "JournalWorker", "JournaledStore"]
