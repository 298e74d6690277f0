"""A store that spans Redis and the journal: its parts have the operations of those of ``DelayStore``."""

from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from celery_ext.journal.chains import JournaledChains
from celery_ext.journal.journal import Journal
from celery_ext.journal.lookup import JournaledLookup
from celery_ext.journal.losses import Losses
from celery_ext.journal.publishing import JournaledDelivery, JournaledJobs, Placement
from celery_ext.journal.views import JournaledFigures, JournaledQueues, JournaledScan
from kombu_delayq.errors import JournalUnavailable
from kombu_delayq.store import DelayStore, Store
from kombu_delayq.store.client import StoreClient


class JournaledStore(Store):
    """Keeps messages in Redis, in the journal, or in both: made of a Redis store and of a journal.

    Takes the arguments of ``DelayStore``. Parts that need no journal are those of the Redis store. Errors of the
    database are SQLAlchemy's own, as those of Redis are redis-py's.

    Attributes:
        journal: The tables.
        redis_alone: The Redis store, for while the database is away.
    """

    database_errors = (SQLAlchemyError, JournalUnavailable)

    def __init__(self, *args: Any) -> None:
        redis, client = DelayStore(*args), StoreClient(*args)
        self.redis_alone = redis
        self.client, self.keys, self.options = redis.client, redis.keys, redis.options
        self.journal = journal = Journal(self.options.journal_url or "")
        self.promotion = promotion = redis.promotion
        placement = Placement(client, journal, Losses(journal, promotion).next_epoch)
        self.delivery = JournaledDelivery(redis.delivery, journal, client, placement)
        self.chains = JournaledChains(redis.chains, journal, client, placement, promotion)
        self.jobs = JournaledJobs(redis.jobs, journal, client, placement)
        self.lookup = JournaledLookup(redis.lookup, journal, client, promotion)
        self.scan = JournaledScan(redis.scan, journal, redis.lookup)
        self.queues = JournaledQueues(redis.queues, journal, client, promotion)
        self.figures = JournaledFigures(redis.figures, journal)

    def __getattr__(self, name: str) -> Any:
        if name == "redis_alone":
            raise AttributeError(name)
        return getattr(self.redis_alone, name)
