"""Promotes all rows that are due soon, page by page."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import NamedTuple

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.journal.leadership import Leadership, NotLeading
from celery_ext.journal.rows import MOST_BYTES, Row
from celery_ext.journal.store import JournaledStore
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

#: Errors that one queue alone has.
_OF_QUEUE = (NoPermissionError, InvalidQueueName)

#: Number of words by ``promoted``, ``pushed`` and ``claimed``.
Words = Counter[str]


class PromotedRows(NamedTuple):
    """What a call of ``promote_due`` has done.

    Attributes:
        promoted: Number of rows that it put into Redis.
        pushed: Number of rows that were in Redis already: a promoter before had died before it marked them.
        claimed: Number of rows that were cancelled or changed meanwhile.
        seconds: How long it took.
    """

    promoted: int
    pushed: int
    claimed: int
    seconds: float

    @property
    def found(self) -> int:
        """Number of rows that it found."""
        return self.promoted + self.pushed + self.claimed


class RowPromoter:
    """Promotes rows for the promoter that leads.

    Redis gets a row first, and the guard notes it in the same step. Then the journal marks the row, and the row leaves
    the guard. If the process dies in between, the next promoter finds the row and asks the guard.

    Args:
        store: The store, with connections of its own.
        leadership: The leadership, which is taken.
        goes_on: Whether to go on with the next page.
    """

    def __init__(self, store: JournaledStore, leadership: Leadership, goes_on: Callable[[], bool]) -> None:
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
        pushed = promotion.pushed(self._queues())
        if pushed and max(pushed) > journal.last_number():
            journal.catch_up(journal.heartbeat())
            raise NotLeading("superseded")
        promotion.settle_rows(row for row in journal.rows(pushed, None) if row.state)

    def promote_due(self) -> PromotedRows:
        """Promotes all rows that are due within ``journal_lead``.

        Raises:
            NotLeading: This process leads no more.
        """
        begun, store = monotonic(), self._store
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
            store.promotion.prune(begun_ms - CLAIMED_MS, begun_ms - VANISHED_MS, self._queues())
            self._next_prune = monotonic() + PRUNE_S
        return PromotedRows(words["promoted"], words["pushed"], words["claimed"], monotonic() - begun)

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
            self._store.promotion.settle_rows(row for row in rows if row.seq in marked)

    def _queues(self) -> set[str]:
        return set() if self._leadership.in_queues is None else self._leadership.in_queues.taken

    def _push(self, queue: str, rows: Sequence[Row]) -> dict[int, str]:
        try:
            self._store.keys.check_queue(queue)
            if self._leadership.enter(queue):
                rows = self._store.journal.rows([row.seq for row in rows])
            journal_id, token = self._store.journal.id, self._leadership.token
            found = self._store.promotion.promote(journal_id, token, [row.for_redis for row in rows])
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
