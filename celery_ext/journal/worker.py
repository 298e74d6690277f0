"""The thread that promotes: one process at a time, beside its transfer worker."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import LockError, NoPermissionError, RedisError, ResponseError
from redis.lock import Lock

from celery_ext.journal.errors import JournalRefused
from celery_ext.journal.keys import JournalKeys
from celery_ext.journal.leadership import NotLeading, PromoterLeadership
from celery_ext.journal.promotion import Row
from celery_ext.journal.recovery import find_missing, restore, trim
from celery_ext.journal.rows import MOST_BYTES
from celery_ext.journal.store import JournaledStore
from kombu_delayq.background import BackgroundWorker
from kombu_delayq.errors import InvalidQueueName

logger = get_logger(__name__)

#: Most rows that are read and marked at once; of large ones come fewer.
PAGE = 4000
#: How long the guard keeps a row that was pushed and then vanished from the journal, for who is about to claim it, ms.
VANISHED_MS = 86_400_000.0
#: How long it keeps a row that was claimed, in ms, for a caller that has read the row before and promotes it alone.
CLAIMED_MS = 60_000.0
#: How often old entries leave the guard, in s.
PRUNE_S = 10.0

#: For how long at a time the promoter trims or restores before it looks for rows to promote, in s.
SLICE_S = 0.5
#: How often the promoter looks for rows to trim, in s.
TRIM_S = 10.0
#: How long a promoter waits that has lost its lease or its lead, in s.
AGAIN_S = 0.05

#: Why a promoter waits for the time of a lease before it tries again. With any other reason it tries at once: a lease
#: that is gone, such as with the data of Redis, is not another's.
STANDS_BY = ("other", "elsewhere", "stopped")

#: Errors that one queue alone has.
_OF_QUEUE = (NoPermissionError, InvalidQueueName)

Words = Counter[str]


class RowPromoter:
    """Promotes rows for the promoter that leads.

    Redis gets a row first, and the guard notes it in the same step. Then the journal marks the row, and the row leaves
    the guard. If the process dies in between, the next promoter finds the row and asks the guard.

    Args:
        store: The store, with connections of its own.
        leadership: The leadership, which is taken.
        goes_on: Whether to go on with the next page.
    """

    def __init__(self, store: JournaledStore, leadership: PromoterLeadership, goes_on: Callable[[], bool]) -> None:
        self._store = store
        self._leadership = leadership
        self._goes_on = goes_on
        self._stuck: set[str] = set()
        self._next_prune = 0.0

    def recover(self) -> None:
        """Takes rows out of the guard that an earlier promoter has marked, and that it could not take out.

        Raises:
            NotLeading: The database was set back, and no heartbeat has told it yet.
        """
        journal, promotion = self._store.journal, self._store.promotion
        pushed = promotion.pushed(self._leadership.groups)
        if pushed and max(pushed) > journal.last_number():
            journal.catch_up(journal.heartbeat())
            raise NotLeading("superseded")
        self._settle(row for row in journal.rows(pushed, None) if row.state)

    def promote_due(self) -> Words:
        """Promotes all rows that are due within ``journal_lead``.

        Returns:
            How many rows had which word of Redis; see ``Promoted.words``.

        Raises:
            NotLeading: This process leads no more.
        """
        store = self._store
        begun_ms = store.now_ms()
        before_ms = begun_ms + store.options.journal_lead * 1000
        rows = store.journal.promotable(before_ms, PAGE)
        if len(rows) < PAGE and sum(len(row.body) for row in rows) < MOST_BYTES:
            words, pushed = self._push_page(rows)
            self._mark(pushed)
        else:
            words = self._promote_all(rows, before_ms)
        if monotonic() >= self._next_prune:
            # A row whose claim is older than this call was not read by it, and no later call reads it.
            store.promotion.prune(begun_ms - CLAIMED_MS, begun_ms - VANISHED_MS, self._leadership.groups)
            self._next_prune = monotonic() + PRUNE_S
        return words

    def _promote_all(self, rows: list[Row], before_ms: float) -> Words:
        """Promotes page by page. While Redis takes one, the page before is marked, and the next one is read."""
        promotable, words = self._store.journal.promotable, Words()
        with ThreadPoolExecutor(2, "delayq-journal") as helpers:
            marking: Future[None] | None = None
            while rows and self._goes_on():
                last = rows[-1]
                following = helpers.submit(promotable, before_ms, PAGE, (last.due_ms, last.seq))
                found, pushed = self._push_page(rows)
                words += found
                if marking is not None:
                    marking.result()
                marking = helpers.submit(self._mark, pushed)
                self._leadership.keep()
                rows = following.result()
            if marking is not None:
                marking.result()
        return words

    def _push_page(self, rows: Sequence[Row]) -> tuple[Words, list[Row]]:
        """Puts rows into Redis. Returns counts, and the rows that Redis has by then."""
        self._hold_watermarks(rows)
        by_queue: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_queue[row.queue].append(row)
        words: dict[int, str] = {}
        for queue, own in by_queue.items():
            words |= self._push(queue, own)
        return Counter(words.values()), [row for row in rows if words.get(row.seq, "claimed") != "claimed"]

    def _mark(self, rows: Sequence[Row]) -> None:
        if rows:
            marked = set(self._store.journal.mark([row.seq for row in rows], self._leadership.epoch))
            self._settle(row for row in rows if row.seq in marked)

    def _settle(self, rows: Iterable[Row]) -> None:
        self._store.promotion.settle_rows(self._leadership.journal_id, self._leadership.token, rows)

    def _push(self, queue: str, rows: Sequence[Row]) -> dict[int, str]:
        try:
            self._store.keys.check_queue(queue)
            if self._leadership.enter(queue):
                rows = self._store.journal.rows([row.seq for row in rows])
            found = self._store.promotion.promote(self._leadership.journal_id, self._leadership.token, rows)
        except (ResponseError, InvalidQueueName) as error:
            if not isinstance(error, _OF_QUEUE) and "WRONGTYPE" not in str(error):
                raise
            if queue not in self._stuck:  # the rows of other queues go on
                self._stuck.add(queue)
                logger.error("rows of queue %r stay in the journal: %s", queue, error)
            return {}
        if found.word != "promoted":
            raise NotLeading(found.word)
        self._stuck.discard(queue)
        return found.words

    def _hold_watermarks(self, rows: Sequence[Row]) -> None:
        """Lowers the watermarks of queues whose rows come late, so that a loss before their transfer misses none."""
        late: dict[str, float] = {}
        for row in rows:
            if row.due_ms < self._leadership.moved_to_ms:
                late[row.queue] = min(row.due_ms, late.get(row.queue, row.due_ms))
        if late:
            self._store.journal.lower_watermarks(late)


class JournalWorker(BackgroundWorker):
    """Promotes rows of a journal, in a thread of a consumer or as a process of its own.

    Any number of workers may run. The one that holds the lease promotes, notes the watermarks, trims, and restores if
    ``journal_restore`` is ``auto``; the others look now and then whether the lease is free. It never blocks a transfer
    worker: it has its own thread and connections.

    Args:
        connect: Makes a store with its own connections; called again after each outage.
    """

    _logger = logger
    _thread_name = "delayq-journal"
    _away = (JournalRefused, RedisError, OSError)
    _end_line = "the journal goes on after %.1f s"
    _refused_line = "no journal is promoted by this process: %s"
    _fault_line = "the promoter failed and starts again"

    def __init__(self, connect: Callable[[], JournaledStore]) -> None:
        super().__init__()
        self._connect = connect
        self._leading = False
        self._refused = ""
        self._elsewhere = 0  # how often another Redis was found to have the journal, since this one had it
        self._led: PromoterLeadership | None = None  # until the database went away

    @property
    def leading(self) -> bool:
        """Whether this worker promotes."""
        return self._leading

    def _outage_line(self, error: Exception) -> str:
        what = "the journal's database" if isinstance(error, JournalRefused) else "Redis"
        return f"the journal waits, because {what} cannot be used: {type(error).__name__}: {error}"

    def _connect_and_work(self) -> None:
        store = self._connect()
        with ExitStack() as cleanup:
            cleanup.callback(store.close)
            store.journal.allow_long_calls()
            while not self._stopping.is_set():
                self._tell_what_left(store)
                lease = store.promotion.lease()
                if lease.acquire(token=self.name) and self._lead(store, lease) not in STANDS_BY:
                    self._stopping.wait(AGAIN_S)
                else:
                    if self._outage.down_since is not None:
                        store.journal.heartbeat()  # without the lease nothing else has asked the database
                    self._outage.succeeded()
                    self._stopping.wait(store.options.lease_ttl)

    def _lead(self, store: JournaledStore, lease: Lock) -> str:
        """Promotes for as long as this worker has the lease and the lead. Returns why it has them no more."""
        with ExitStack() as cleanup:
            cleanup.callback(_give_back, lease)
            cleanup.callback(self._end)
            leadership = PromoterLeadership(store, self.name)
            try:
                leadership.begin()
                self._refused, self._elsewhere = "", 0
                self._leading = True
                logger.info("journal worker %s promotes", self.name)
                self._work(store, lease, leadership)
                store.journal.resign(leadership.token)
            except NotLeading as error:
                self._refuse(store, str(error))
                return str(error)
            except LockError:
                logger.info("journal worker %s has no lease any more", self.name)
                return "no lease"
            except JournalRefused:
                self._led = leadership if self._leading else self._led
                raise
        return "stopped"

    def _tell_what_left(self, store: JournaledStore) -> None:
        """Notes up to where Redis has delivered while the database was away: if Redis is lost, nobody else knows."""
        if self._led is not None:
            with suppress(NotLeading):
                self._led.look_on(store)
            store.journal.raise_watermarks(self._led.token, self._led.seen)
            self._led = None

    def _work(self, store: JournaledStore, lease: Lock, leadership: PromoterLeadership) -> None:
        promoter = RowPromoter(store, leadership, lambda: self._may_go_on(lease))
        promoter.recover()
        next_trim, is_comparing = 0.0, False
        comparing: Iterator[None] = iter(())
        while self._may_go_on(lease):
            leadership.keep()
            promoter.promote_due()
            self._outage.succeeded()
            if not is_comparing and leadership.unverified:
                comparing = compare(store, leadership)
            if is_comparing := _has_more(comparing):
                continue
            if store.options.journal_restore == "auto" and store.journal.has_lost():
                self._restore(store, lease, leadership)
            elif monotonic() >= next_trim:
                next_trim = 0.0 if _has_more(trim(store)) else monotonic() + TRIM_S
            self._stopping.wait(min(leadership.wait_s, store.options.poll_interval))

    def _restore(self, store: JournaledStore, lease: Lock, leadership: PromoterLeadership) -> None:
        """Restores for a while; a restore that is cut short goes on where it was."""
        until, count, unsure = monotonic() + SLICE_S, 0, 0
        for page in restore(store):
            count, unsure = count + page.restored, unsure + page.unsure
            leadership.keep()
            if not self._may_go_on(lease) or monotonic() >= until:
                break
        logger.warning("%d messages that Redis had lost were restored, of which %d may have run", count, unsure)

    def _may_go_on(self, lease: Lock) -> bool:
        """Renews the lease. Returns False once the worker is to stop.

        Raises:
            LockError: Another has the lease.
        """
        if self._stopping.is_set():
            return False
        lease.reacquire()
        return True

    def _refuse(self, store: JournaledStore, why: str) -> None:
        self._elsewhere += why == "elsewhere"
        if why == "elsewhere" and self._elsewhere == 2:  # a Redis that has come back empty is first found by any worker
            logger.error("nothing is promoted here: %s", store.journal.leader())
        if why == "other" and why != self._refused:
            logger.error(
                "nothing is promoted: this Redis belongs to another journal. Check journal_url; if Redis was filled by "
                "a journal that is gone, delete the key %s",
                JournalKeys(store.keys).journal(),
            )
        self._refused = why

    def _end(self) -> None:
        self._leading = False


def compare(store: JournaledStore, leadership: PromoterLeadership) -> Iterator[None]:
    """Compares Redis with the journal, page by page, as its server has restarted or failed over."""
    servers = dict(leadership.unverified)
    # All queues: one that is new has no marker yet which would say that its server is another.
    for page in find_missing(store, (), leadership.written_until):
        if page.missing:
            logger.error(
                "Redis has lost data: %d messages are missing since it started, or failed over. `delayq journal "
                "restore` puts them back",
                page.missing,
            )
        yield
    leadership.compared(servers)


def _has_more(pages: Iterator[object]) -> bool:
    """Works on pages for ``SLICE_S``. Returns whether it has to go on."""
    until = monotonic() + SLICE_S
    return any(monotonic() >= until for _ in pages)


def _give_back(lease: Lock) -> None:
    with suppress(RedisError, OSError):  # the lease ends by itself
        lease.release()
