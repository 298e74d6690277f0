"""The journal: delayed messages in an SQL database beside Redis, for what is due late, and for a Redis that is lost."""

from typing import TYPE_CHECKING

from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.journal.journal import Journal
    from celery_ext.journal.store import JournaledStore
    from celery_ext.journal.worker import JournalWorker

__all__ = ["Journal", "JournalWorker", "JournaledStore"]

#: Modules of these names, which are imported at first use: they need SQLAlchemy, and what other rooms ask for does not.
_MODULES = {"Journal": "journal", "JournalWorker": "worker", "JournaledStore": "store"}

__getattr__ = later(__name__, _MODULES)
