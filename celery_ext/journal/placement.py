"""Where a message waits that is published: in Redis, in the journal, or in both."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, time
from typing import NamedTuple

from kombu.utils.functional import LRUCache
from redis.exceptions import RedisError, ResponseError

from celery_ext.journal.errors import DatabaseUnavailable, JournalUnavailable
from celery_ext.journal.journal import Journal
from celery_ext.journal.promotion import ALL, Promotion
from celery_ext.journal.rows import Addition
from celery_ext.journal.state import refuse_elsewhere
from kombu_delayq.redis import time_ms
from kombu_delayq.store import LAYOUT_OF, Offer, PageId, StoreClient
from kombu_delayq.text import as_bytes, as_text

#: How long, and for how many messages and pages, an attempt that failed is remembered, so that the next attempt sends
#: the message to the same place.
REMEMBERED_S, REMEMBERED = 600.0, 20_000
#: How often a publisher asks whether the journal is that of its Redis, in s.
ASK_S = 10.0

#: Returns what makes a message the same, as ``Addition.key``.
KeyOf = Callable[[Offer], bytes]


class Placed(NamedTuple):
    """Messages of which Redis is given a part, because a journal has the others.

    Attributes:
        offers: Those that Redis is given.
        rows: Numbers of the rows that were made in the journal.
        stored: How many of the rows are of messages that Redis is not given.
        cutoff_ms: Due time after which Redis is given no message, ms since the epoch.
    """

    offers: Sequence[Offer]
    rows: tuple[int, ...] = ()
    stored: int = 0
    cutoff_ms: float = 0.0


class Attempts:
    """Remembers from which due time on messages were far when they were sent first.

    Between two attempts a clock may be set, or the due time may come within the horizon. Then the second attempt would
    take the message for another place, which does not know that it has come already.
    """

    def __init__(self) -> None:
        self._cutoffs: LRUCache = LRUCache(limit=REMEMBERED)

    def cutoff_ms(self, keys: Iterable[Hashable]) -> float | None:
        """Returns the due time of the first attempt, ms since the epoch; None if there was no attempt lately."""
        # Of its data in one step: another thread may push out what the cache itself has just found.
        found = filter(None, map(self._cutoffs.data.get, keys)) if self._cutoffs else ()
        return next((cutoff_ms for cutoff_ms, until_s in found if until_s > monotonic()), None)

    def remember(self, keys: Iterable[Hashable], cutoff_ms: float) -> None:
        """Remembers an attempt for ``REMEMBERED_S``."""
        self._cutoffs.update(dict.fromkeys(keys, (cutoff_ms, monotonic() + REMEMBERED_S)))


#: Those of this process. A publisher that connects again makes another store.
_attempts = Attempts()


class Placement:
    """Places messages: the only place that decides where a message waits.

    Attributes:
        takes_all: Whether messages that wait in Redis have rows, too.
    """

    def __init__(self, client: StoreClient, journal: Journal, promotion: Promotion) -> None:
        self._client = client
        self._journal = journal
        self._promotion = promotion
        self._horizon_ms = client.options.journal_horizon * 1000
        self.takes_all = client.options.journal == "all"
        self._asks_again_at = 0.0

    def place(
        self,
        queue: str,
        offers: Sequence[Offer],
        expire_ms: int = 0,
        page: PageId | None = None,
        key_of: KeyOf | None = None,
        cutoff_ms: float | None = None,
    ) -> Placed:
        """Writes messages into the journal that belong there, in one transaction for each state.

        Args:
            queue: As in ``Delivery.put``.
            offers: As in ``Delivery.put``.
            expire_ms: As in ``Delivery.put``.
            page: Id of the page, if it is one.
            key_of: Returns the key of a message, as in ``Addition``; without it, the content is the key.
            cutoff_ms: Due time after which messages are far, where the caller has decided so already.

        Raises:
            InvalidQueueName: Redis has no place for the queue's keys, so its rows would never be promoted.
            JournalUnavailable: The database does not answer, or cannot write. It may have the rows. Or it is the
                journal of another Redis, and has none.
        """
        self._client.keys.check_queue(queue)
        keys: Iterable[Hashable] = [page] if page else _keys_of(offers)
        cutoff_ms = self.cutoff_ms(keys) if cutoff_ms is None else cutoff_ms
        if page is not None:  # its sender may confirm it later
            _attempts.remember([page], cutoff_ms)
        near, far = self.split(offers, cutoff_ms)
        kept = [one for one in near if self.takes_all and one.due and one.body]
        try:
            with _as_unavailable():
                if far or kept:
                    self._check_leader()
                stored = self._note(self.additions(queue, far, expire_ms, key_of))
                epoch = self._next_epoch(queue) if kept else 0  # before the rows, which come before the messages
                rows = stored + self._note(self.additions(queue, kept, expire_ms, key_of), offered=True, epoch=epoch)
        except Exception:
            _attempts.remember([page] if page else _keys_of(offers), cutoff_ms)
            raise
        return Placed(near, rows, len(stored), cutoff_ms)

    @contextmanager
    def placing(
        self, queue: str, offers: Sequence[Offer], expire_ms: int = 0, page: PageId | None = None
    ) -> Iterator[Placed]:
        """Places messages as ``place``, for a block that gives Redis its part.

        If Redis refuses, the new rows are taken back. With any other error Redis may have its part, so they stay.
        """
        placed = self.place(queue, offers, expire_ms, page)
        try:
            with _as_unavailable():
                yield placed
        except ResponseError:
            self.take_back(placed)
            raise
        except Exception:
            _attempts.remember(_keys_of(offers), placed.cutoff_ms)
            raise

    def note(self, queue: str, offers: Sequence[Offer], expire_ms: int = 0) -> dict[int, int | None]:
        """Writes rows of messages that Redis is given however late they are due: of those that ``place`` has rows of.

        Returns:
            By the position of such a message: the number of its new row; None if the journal has the message already.
        """
        self._client.keys.check_queue(queue)
        cutoff_ms = self.cutoff_ms()
        noted = {
            at: one
            for at, one in enumerate(offers)
            if one.due not in ("", "+0") and (self.takes_all or self._is_far(one, cutoff_ms))
        }
        if not noted:
            return {}
        with _as_unavailable():
            self._check_leader()
            epoch = self._next_epoch(queue)  # before the rows, which come before the messages
            additions = self.additions(queue, [*noted.values()], expire_ms)
            return dict(zip(noted, self._journal.add(additions, offered=True, epoch=epoch), strict=True))

    def take_back(self, placed: Placed) -> None:
        """Deletes the rows that ``place`` has made."""
        if placed.rows:
            self._journal.delete_rows(placed.rows, state=None)

    def split(self, offers: Sequence[Offer], cutoff_ms: float) -> tuple[list[Offer], list[Offer]]:
        """Returns the messages for Redis and those for the journal alone."""
        near: list[Offer] = []
        far: list[Offer] = []
        for one in offers:
            (far if self._is_far(one, cutoff_ms) else near).append(one)
        return near, far

    def cutoff_ms(self, keys: Iterable[Hashable] = ()) -> float:
        """Returns the due time after which messages are far, ms since the epoch."""
        known = _attempts.cutoff_ms(keys)
        return time() * 1000 + self._horizon_ms if known is None else known

    def additions(
        self, queue: str, offers: Sequence[Offer], expire_ms: int, key_of: KeyOf | None = None
    ) -> list[Addition]:
        """Returns messages in the layout that the journal takes; see ``place``."""
        layout = LAYOUT_OF[self._client.layout]
        # Due times that are relative count by Redis's clock.
        now_ms = time_ms(self._client.ask("TIME")) if any(one.due.startswith("+") for one in offers) else 0.0
        found = []
        for one in offers:
            due_ms = now_ms + float(one.due[1:]) if one.due.startswith("+") else float(one.due)
            key = key_of(one) if key_of else b""
            found.append(
                Addition(
                    queue,
                    as_text(one.id),
                    float(layout.kept_ms(due_ms)),
                    one.priority,
                    as_bytes(one.body),
                    expire_ms,
                    key,
                )
            )
        return found

    def _is_far(self, offer: Offer, cutoff_ms: float) -> bool:
        if not offer.due:
            return False
        if offer.due.startswith("+"):  # no clock has to agree
            return float(offer.due[1:]) > self._horizon_ms
        return float(offer.due) > cutoff_ms

    def _note(self, additions: Sequence[Addition], *, offered: bool = False, epoch: int = 0) -> tuple[int, ...]:
        made = self._journal.add(additions, offered=offered, epoch=epoch) if additions else []
        return tuple(seq for seq in made if seq is not None)

    def _check_leader(self) -> None:
        """Refuses rows for a journal that is led from another Redis: they would be promoted there."""
        if monotonic() < self._asks_again_at:
            return
        refuse_elsewhere(self._journal, self._promotion)
        self._asks_again_at = monotonic() + ASK_S

    def _next_epoch(self, queue: str) -> int:
        """Returns the epoch that begins once somebody notices that a queue has lost its data; 0 if it has not.

        Messages that Redis is given by then belong to it, and are not lost.
        """
        journal, promotion = self._journal, self._promotion
        try:
            if promotion.is_marked(queue):
                return 0
            if not journal.heartbeat() or promotion.group_of(queue) not in {ALL, *journal.marked()}:
                return 0  # nobody has written a marker yet
            epoch = journal.epoch()
            # The process that notices the loss writes the marker first. So without one this epoch has not ended.
            return 0 if promotion.is_marked(queue) else epoch + 1
        except (RedisError, OSError):  # Redis refuses the question, or is away: what follows tells
            return 0


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Says of a database that is away, or cannot write now, what it does not do."""
    try:
        yield
    except DatabaseUnavailable as error:
        raise JournalUnavailable(f"the journal's database does not take a message: {error.said}") from error


def _keys_of(offers: Sequence[Offer]) -> Iterator[Hashable]:
    """Yields by what a message is recognized that is offered again in this process."""
    return ((one.id, hash(one.body)) for one in offers)
