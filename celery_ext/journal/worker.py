"""The thread that promotes: one process at a time, beside its transfer worker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import LockError, RedisError
from redis.lock import Lock
from sqlalchemy.exc import SQLAlchemyError

from celery_ext.journal.leadership import Leadership, NotLeading
from celery_ext.journal.promotion import PromotedRows, RowPromoter
from celery_ext.journal.recovery import Compared, find_missing, restore, trim
from celery_ext.journal.store import JournaledStore
from kombu_delayq.redis.backoff import Outage
from kombu_delayq.transfer.background import BackgroundWorker

logger = get_logger(__name__)

#: For how long at a time the promoter trims or restores before it looks for rows to promote, in s.
SLICE_S = 0.5
#: How often the promoter looks for rows to trim, in s.
TRIM_S = 10.0
#: How long a promoter waits that has lost its lease or its lead, in s.
AGAIN_S = 0.05

#: Why a promoter waits for the time of a lease before it tries again. With any other reason it tries at once: a lease
#: that is gone, such as with the data of Redis, is not another's.
STANDS_BY = ("other", "stopped")

OnPromoted = Callable[[PromotedRows], None]


class JournalWorker(BackgroundWorker):
    """Promotes rows of a journal, in a thread of a consumer or as a process of its own.

    Any number of workers may run. The one that holds the lease promotes, notes the watermarks, trims, and restores if
    ``journal_restore`` is ``auto``; the others look now and then whether the lease is free. It never blocks a transfer
    worker: it has its own thread and connections.

    Args:
        connect: Makes a store with its own connections; called again after each outage.
        on_promoted: Called each time that it has promoted rows.
    """

    _logger = logger
    _thread_name = "delayq-journal"
    _away = (SQLAlchemyError, RedisError, OSError)
    _refused_line = "no journal is promoted by this process: %s"
    _fault_line = "the promoter failed and starts again"

    def __init__(self, connect: Callable[[], JournaledStore], *, on_promoted: OnPromoted | None = None) -> None:
        super().__init__(Outage(logger, "the journal goes on after %.1f s"))
        self._connect = connect
        self._on_promoted = on_promoted
        self._leading = False
        self._refused = ""

    @property
    def leading(self) -> bool:
        """Whether this worker promotes."""
        return self._leading

    def _outage_line(self, error: Exception) -> str:
        what = "the journal's database" if isinstance(error, SQLAlchemyError) else "Redis"
        text = str(error).partition("\n")[0]  # what follows are the statement and advice of SQLAlchemy
        return f"the journal waits, because {what} cannot be used: {type(error).__name__}: {text}"

    def _connect_and_work(self) -> None:
        store = self._connect()
        with ExitStack() as cleanup:
            cleanup.callback(store.close)
            store.journal.allow_long_calls()
            while not self._stopping.is_set():
                lease = store.promotion.lease()
                if lease.acquire(token=self.name) and self._lead(store, lease) not in STANDS_BY:
                    self._stopping.wait(AGAIN_S)
                else:
                    self._outage.succeeded()
                    self._stopping.wait(store.options.lease_ttl)

    def _lead(self, store: JournaledStore, lease: Lock) -> str:
        """Promotes for as long as this worker has the lease and the lead. Returns why it has them no more."""
        with ExitStack() as cleanup:
            cleanup.callback(_give_back, lease)
            cleanup.callback(self._end)
            leadership = Leadership(store)
            try:
                leadership.begin()
                self._refused = ""
                self._leading = True
                logger.info("journal worker %s promotes", self.name)
                self._work(store, lease, leadership)
            except NotLeading as error:
                self._refuse(str(error))
                return str(error)
            except LockError:
                logger.info("journal worker %s has no lease any more", self.name)
                return "no lease"
        return "stopped"

    def _work(self, store: JournaledStore, lease: Lock, leadership: Leadership) -> None:
        promoter = RowPromoter(store, leadership, lambda: self._may_go_on(lease))
        promoter.recover()
        next_trim, comparison = 0.0, Comparison(store, leadership)
        while self._may_go_on(lease):
            leadership.keep()
            done = promoter.promote_due()
            self._outage.succeeded()
            if self._on_promoted is not None and done.found:
                self._on_promoted(done)
            if comparison.go_on(SLICE_S):
                continue
            if store.options.journal_restore == "auto" and (store.journal.unrestored() or store.journal.missing_ms()):
                self._restore(store, lease, leadership)
            elif monotonic() >= next_trim:
                until = monotonic() + SLICE_S
                has_more = any(monotonic() >= until for _ in trim(store))
                next_trim = 0.0 if has_more else monotonic() + TRIM_S
            self._stopping.wait(min(leadership.wait_s, store.options.poll_interval))

    def _restore(self, store: JournaledStore, lease: Lock, leadership: Leadership) -> None:
        """Restores for a while; a restore that is cut short goes on where it was."""
        until, count = monotonic() + SLICE_S, 0
        for page in restore(store):
            count += page.restored
            leadership.keep()
            if not self._may_go_on(lease) or monotonic() >= until:
                break
        logger.warning("%d messages that Redis had lost were restored", count)

    def _may_go_on(self, lease: Lock) -> bool:
        """Renews the lease. Returns False once the worker is to stop.

        Raises:
            LockError: Another has the lease.
        """
        if self._stopping.is_set():
            return False
        lease.reacquire()
        return True

    def _refuse(self, why: str) -> None:
        if why == "other" and why != self._refused:
            logger.error(
                "nothing is promoted: this Redis belongs to another journal. Check journal_url; if Redis was filled by "
                "a journal that is gone, delete the key delayq:journal"
            )
        self._refused = why

    def _end(self) -> None:
        self._leading = False


class Comparison:
    """Compares Redis with the journal, a slice at a time, once its server has restarted or failed over.

    Args:
        store: The store.
        leadership: The leadership, which is taken, and says when.
    """

    def __init__(self, store: JournaledStore, leadership: Leadership) -> None:
        self._store, self._leadership = store, leadership
        self._queues: dict[str, str] = {}
        self._pages: Iterator[Compared] | None = None

    def go_on(self, for_s: float) -> bool:
        """Compares for a while. Returns whether there is more to compare."""
        if self._pages is None:
            if not self._leadership.unverified:
                return False
            self._queues = dict(self._leadership.unverified)
            # All queues: one that is new has no marker yet which would say that its server is another.
            self._pages = find_missing(self._store, (), self._leadership.written_until)
        until = monotonic() + for_s
        for page in self._pages:
            if page.missing:
                logger.error(
                    "Redis has lost data: %d messages are missing since it started, or failed over. `delayq journal "
                    "restore` puts them back",
                    page.missing,
                )
            if monotonic() >= until:
                return True
        self._pages = None
        self._leadership.compared(self._queues)
        return False


def _give_back(lease: Lock) -> None:
    with suppress(RedisError, OSError):  # the lease ends by itself
        lease.release()
