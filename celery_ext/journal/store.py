"""A store of two, Redis and the journal: its parts have the operations of those of ``DelayStore``."""

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar, cast

from celery_ext.journal.chains import JournaledChains
from celery_ext.journal.database import parse_url, shown
from celery_ext.journal.delivery import JournaledDelivery
from celery_ext.journal.jobs import JournaledJobs
from celery_ext.journal.journal import Journal
from celery_ext.journal.lookup import JournaledLookup
from celery_ext.journal.placement import Placement
from celery_ext.journal.promotion import Promotion
from celery_ext.journal.state import state_of
from celery_ext.journal.views import JournaledFigures, JournaledQueues, JournaledScan
from celery_ext.spark.store import BulkJobs
from kombu_delayq.background import BackgroundWorker
from kombu_delayq.store import DelayStore, Store, StoreClient, StorePart

P = TypeVar("P", bound=StorePart)


class JournaledStore(Store):
    """Keeps messages in Redis, in the journal, or in both: made of a Redis store and of a journal.

    Takes the arguments of ``DelayStore``. Whatever needs no journal is that of the Redis store.

    Attributes:
        journal: The tables.
        placement: What decides where a message waits.
        redis_alone: The Redis store, for while the database is away.
    """

    def __init__(self, *args: Any) -> None:
        redis, client = DelayStore(*args), StoreClient(*args)
        self.redis_alone = redis
        self.client, self.keys, self.options = redis.client, redis.keys, redis.options
        self.journal = journal = Journal(self.options.journal_url or "")
        self.promotion = promotion = redis.part(Promotion)
        self.placement = placement = Placement(client, journal, promotion)
        self.lookup = JournaledLookup(redis.lookup, journal, client, promotion)
        self.delivery = JournaledDelivery(redis.delivery, journal, client, placement, self.lookup)
        self.chains = JournaledChains(redis.chains, journal, client, placement, promotion)
        self._own: dict[type[StorePart], Any] = {
            BulkJobs: JournaledJobs(redis.part(BulkJobs), journal, client, placement)
        }
        self.scan = JournaledScan(redis.scan, journal, redis.lookup)
        self.queues = JournaledQueues(redis.queues, journal, client, promotion)
        self.figures = JournaledFigures(redis.figures, journal)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # such as what ``copy`` asks for
            raise AttributeError(name)
        return getattr(self.redis_alone, name)

    @staticmethod
    def companion(connect: Callable[[], Any]) -> BackgroundWorker:
        """Makes a worker that promotes rows; see ``kombu_delayq.hooks``."""
        from celery_ext.journal import JournalWorker

        return JournalWorker(connect)

    @staticmethod
    def shown(url: str) -> str:
        """Returns the URL of a journal without its password. Raises InvalidOptions if it is not usable."""
        return shown(parse_url(url))

    @property
    def keeps_all(self) -> bool:
        """Whether the journal has rows of messages that wait in Redis, too."""
        return self.options.journal == "all"

    def part(self, kind: type[P]) -> P:
        """Returns the part of a feature; see ``Store.part``."""
        return cast(P, self._own.get(kind) or self.redis_alone.part(kind))

    def reading(self, *, counted: bool = True) -> Any:
        """Looks at the journal; see ``Store.reading`` and ``JournalState``."""
        state = state_of(self, counted=counted)
        found = copy(self.redis_alone if state.error else self)
        found.beside = state
        return found
