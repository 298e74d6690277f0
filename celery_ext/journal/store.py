"""A store that spans Redis and the journal: its parts have the operations of those of ``DelayStore``."""

from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from celery_ext.journal.chains import JournaledChains
from celery_ext.journal.lookup import JournaledLookup
from celery_ext.journal.losses import Losses
from celery_ext.journal.publishing import JournaledDelivery, JournaledJobs, Placement
from celery_ext.journal.table import Journal
from celery_ext.journal.views import JournaledFigures, JournaledQueues, JournaledScan
from kombu_delayq.errors import JournalUnavailable
from kombu_delayq.store import DelayStore


class JournaledStore(DelayStore):
    """Keeps messages in Redis, in the journal, or in both. Takes the arguments of ``DelayStore``.

    Errors of the database are SQLAlchemy's own, as those of Redis are redis-py's.

    Attributes:
        journal: The tables.
        redis_alone: A store over the same connections that does not know the journal, for while its database is away.
    """

    database_errors = (SQLAlchemyError, JournalUnavailable)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.redis_alone = DelayStore(*args)
        self.journal = Journal(self.options.journal_url or "")
        placement = Placement(self._shared, self.journal, Losses(self.journal, self.promotion).next_epoch)
        self.delivery = JournaledDelivery(self._shared, self._registry, placement)
        self.chains = JournaledChains(self._shared, self._registry, self.journal, placement)
        self.jobs = JournaledJobs(self._shared, self._registry, placement)
        self.lookup = JournaledLookup(self._shared, self._registry, self.journal)
        self.scan = JournaledScan(self._shared, self.journal)
        self.queues = JournaledQueues(self._shared, self._registry, self.journal)
        self.figures = JournaledFigures(self._shared, self.journal)
