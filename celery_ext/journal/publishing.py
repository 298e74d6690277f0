"""Publishing into Redis, into the journal, or into both."""

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from time import monotonic, time

from kombu.log import get_logger
from redis.exceptions import RedisError, ResponseError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from celery_ext.journal.both import PartOfBoth
from celery_ext.journal.journal import Journal
from celery_ext.journal.lookup import JournaledLookup
from celery_ext.journal.rows import Addition
from kombu_delayq.errors import InvalidIfWaiting, JournalUnavailable
from kombu_delayq.message.fields import DELIVERY_COUNT, headers_of, info_of, properties_of, read
from kombu_delayq.message.once import Once
from kombu_delayq.message.text import as_bytes, as_text
from kombu_delayq.redis.replies import Command, time_ms
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.job_types import Enqueued, JobRun
from kombu_delayq.store.jobs import BulkJobs
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.promotion import Promotion
from kombu_delayq.store.types import Offer, Offered, PageId, Placed

#: How long, and for how many messages and pages, an attempt that failed is remembered, so that the next attempt sends
#: the message to the same place.
REMEMBERED_S, REMEMBERED = 600.0, 20_000

#: Returns what makes a message the same, as ``Addition.key``.
KeyOf = Callable[[Offer], bytes]


class Attempts:
    """Remembers from which due time on messages were far when they were sent first.

    Between two attempts a clock may be set, or the due time may come within the horizon. Then the second attempt would
    take the message for another place, which does not know that it has come already.
    """

    def __init__(self) -> None:
        self._cutoffs: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def cutoff_ms(self, keys: Iterable[Hashable]) -> float | None:
        """Returns the due time of the first attempt, ms since the epoch; None if there was no attempt lately."""
        if not self._cutoffs:
            return None
        with self._lock:
            found = [self._cutoffs[key] for key in keys if key in self._cutoffs]
        return next((cutoff_ms for cutoff_ms, until_s in found if until_s > monotonic()), None)

    def remember(self, keys: Iterable[Hashable], cutoff_ms: float) -> None:
        """Remembers an attempt for ``REMEMBERED_S``."""
        until_s = monotonic() + REMEMBERED_S
        with self._lock:
            for key in keys:
                self._cutoffs.pop(key, None)
                self._cutoffs[key] = cutoff_ms, until_s
            while len(self._cutoffs) > REMEMBERED:
                self._cutoffs.popitem(last=False)


#: Those of this process. A publisher that connects again makes another store.
_attempts = Attempts()


class Placement:
    """Places messages: the only place that decides where a message waits.

    Args:
        client: The client of the store.
        journal: The tables.
        promotion: Redis's side of the journal.

    Attributes:
        takes_all: Whether messages that wait in Redis have rows, too.
    """

    def __init__(self, client: StoreClient, journal: Journal, promotion: Promotion) -> None:
        self._client = client
        self._journal = journal
        self._promotion = promotion
        self._horizon_ms = client.options.journal_horizon * 1000
        self.takes_all = client.options.journal == "all"

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
            JournalUnavailable: The database does not answer, or cannot write. It may have the rows.
        """
        self._client.keys.check_queue(queue)
        keys: Iterable[Hashable] = [page] if page else _keys_of(offers)
        cutoff_ms = self.cutoff_ms(keys) if cutoff_ms is None else cutoff_ms
        if page is not None:  # its sender may confirm it later
            _attempts.remember([page], cutoff_ms)
        near, far = self.split(offers, cutoff_ms)
        try:
            stored = self._note(self.additions(queue, far, expire_ms, key_of))
            rows = stored
            if self.takes_all:
                kept = [one for one in near if one.due and one.body]
                epoch = self._next_epoch(queue) if kept else 0  # before the rows, which come before the messages
                rows += self._note(self.additions(queue, kept, expire_ms, key_of), offered=True, epoch=epoch)
        except Exception as error:
            _attempts.remember([page] if page else _keys_of(offers), cutoff_ms)
            if _is_outage(error):
                raise JournalUnavailable(_reason_of(error)) from error
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
            yield placed
        except ResponseError:
            self.take_back(placed)
            raise
        except Exception as error:
            _attempts.remember(_keys_of(offers), placed.cutoff_ms)
            if _is_outage(error):
                raise JournalUnavailable(_reason_of(error)) from error
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
        try:
            epoch = self._next_epoch(queue)  # before the rows, which come before the messages
            additions = self.additions(queue, [*noted.values()], expire_ms)
            return dict(zip(noted, self._journal.add(additions, offered=True, epoch=epoch), strict=True))
        except Exception as error:
            if _is_outage(error):
                raise JournalUnavailable(_reason_of(error)) from error
            raise

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
        now_ms = self._now_ms() if any(one.due.startswith("+") for one in offers) else 0.0
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

    def _next_epoch(self, queue: str) -> int:
        """Returns the epoch that begins once somebody notices that a queue has lost its data; 0 if it has not.

        Messages that Redis is given by then belong to it, and are not lost.
        """
        journal, promotion = self._journal, self._promotion
        try:
            if promotion.is_marked(queue):
                return 0
            if not journal.heartbeat() or (promotion.by_queue and queue not in journal.marked()):
                return 0  # nobody has written a marker yet
            epoch = journal.epoch()
            # Whoever notices the loss writes the marker first. So without one this epoch has not ended.
            return 0 if promotion.is_marked(queue) else epoch + 1
        except (RedisError, OSError):  # Redis refuses the question, or is away: what follows tells
            return 0

    def _now_ms(self) -> float:
        """Returns Redis's clock, by which due times count that are relative."""
        return time_ms(self._client.ask("TIME"))


def _is_outage(error: Exception) -> bool:
    """Whether the database is away, or cannot write now."""
    return isinstance(error, OperationalError | InterfaceError)


def _reason_of(error: Exception) -> str:
    return f"the journal's database does not take a message: {type(getattr(error, 'orig', error)).__name__}"


def _keys_of(offers: Sequence[Offer]) -> Iterator[Hashable]:
    """Yields by what a message is recognized that is offered again in this process."""
    return ((one.id, hash(one.body)) for one in offers)


logger = get_logger(__name__)

#: For how long consumers do not ask the database again that has not answered, in s: each time the worker stands still.
PAUSE_S = 30.0


class JournaledDelivery(PartOfBoth[Delivery]):
    """Takes messages in: those that are due late go to the journal, the others to Redis.

    Rows come first. If the process dies in between, the message waits in the journal, or it has a row more than Redis
    has messages, which nobody looks at before Redis has lost its data.

    Args:
        redis: The part of the Redis store.
        journal: The tables.
        client: Redis.
        placement: Decides where a message waits.
        lookup: Finds messages in both.
    """

    def __init__(
        self,
        redis: Delivery,
        journal: Journal,
        client: StoreClient,
        placement: Placement,
        lookup: JournaledLookup,
    ) -> None:
        super().__init__(redis, journal)
        self.bury, self.push, self.give_back, self.confirm = redis.bury, redis.push, redis.give_back, redis.confirm
        self.offer_command, self.put_command = redis.offer_command, redis.put_command
        self.transfer, self.transfer_limited = redis.transfer, redis.transfer_limited
        self.heads, self.listen = redis.heads, redis.listen
        self._client = client
        self._placement = placement
        self._lookup = lookup
        self._asks_again_at = 0.0

    def place(self, queue: str, offers: Sequence[Offer], expire_ms: int = 0, page: PageId | None = None) -> Placed:
        """Writes messages into the journal; see ``Delivery.place``."""
        return self._placement.place(queue, offers, expire_ms, page)

    def take_back(self, placed: Placed) -> None:
        """Deletes rows that Redis has refused; see ``Delivery.take_back``."""
        self._placement.take_back(placed)

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Stores messages until they are due, each where it belongs; see ``Delivery.offer``."""
        with self._placement.placing(queue, offers, expire_ms) as placed:
            if placed.offers:
                offered = self._redis.offer(queue, *placed.offers, expire_ms=expire_ms)
            else:
                offered = Offered("behind", 0, 0, 0)
        repeated = len(offers) - len(placed.offers) - placed.stored
        return offered._replace(offered=offered.offered + placed.stored, repeated=offered.repeated + repeated)

    def offer_once(self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0) -> list[Once]:
        """Stores messages in Redis, however late they are due; see ``Delivery.offer_once``.

        What waits in the journal under their ids is promoted first, so that the script sees all that waits. It decides:
        where it keeps a message out, the new row goes, and where it replaces one, the row of that one. Where Redis
        takes nothing from the journal yet, what waits there cannot leave, and so decides in the script's place.
        """
        return self.offer_once_told(queue, mode, *offers, expire_ms=expire_ms)[0]

    def offer_once_told(
        self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0
    ) -> tuple[list[Once], set[tuple[int, bytes]]]:
        """Does what ``offer_once`` does, and returns what was replaced, too; see ``Delivery.offer_once_told``."""
        same = {(as_text(one.id), one.priority, as_bytes(one.body)) for one in offers}
        rows = self._lookup.promote_ids(queue, {identity for identity, *_ in same})
        here = [row for row in rows if (row.id, row.priority, row.body) not in same]
        decided = {row.id for row in here}
        left = [one for one in offers if mode != "keep" or as_text(one.id) not in decided]
        words, gone = self._decided(queue, mode, left, expire_ms) if left else ([], set())
        if mode == "keep":
            next_word = iter(words)
            return ["kept" if as_text(one.id) in decided else next(next_word) for one in offers], gone
        if here:  # after the messages: a caller that dies here leaves two, not none
            self._lookup.discard(queue, [(row.waiting, "") for row in here])
        gone |= {(row.priority, row.body) for row in here}
        return [
            "replaced" if as_text(one.id) in decided else word for one, word in zip(offers, words, strict=True)
        ], gone

    def _decided(
        self, queue: str, mode: str, offers: Sequence[Offer], expire_ms: int
    ) -> tuple[list[Once], set[tuple[int, bytes]]]:
        """Lets Redis decide about messages, whose rows come first, and lets the rows follow."""
        noted = self._placement.note(queue, offers, expire_ms)
        try:
            words, gone = self._redis.offer_once_told(queue, mode, *offers, expire_ms=expire_ms)
        except ResponseError:
            self._journal.delete_rows([seq for seq in noted.values() if seq is not None], state=None)
            raise
        contents = [(one.priority, as_bytes(one.body)) for one in offers]
        # By its content: an attempt before this one may have made the row of what is kept out.
        stale = gone | {contents[at] for at in noted if words[at] == "kept"}
        left = {one.id: at for at, one in enumerate(offers) if words[at] != "kept"}
        stale.difference_update(contents[at] for at in left.values())
        if stale:
            self._lookup.delete_rows_of(queue, {as_text(one.id) for one in offers}, stale)
        return words, gone

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages, each to where it belongs; see ``Delivery.put``."""
        with self._placement.placing(queue, offers, expire_ms, page) as placed:
            return self._redis.put(queue, page, placed.offers, expire_ms) if placed.offers else "behind"

    def adopt(self, queue: str, offer: Offer, tag: str, unacked_index: str, unacked: str, expire_ms: int = 0) -> str:
        """Moves a message that a consumer holds into the journal or the store; see ``Delivery.adopt``.

        A consumer has nobody to tell that the database does not answer, so the message waits in Redis then.
        """
        if tag and not self._client.ask("HEXISTS", unacked, tag):
            return "gone"
        placed = self._place_early(queue, offer, expire_ms)
        if not placed.offers:
            if tag:  # the row is there, so the message waits even if the consumer has just lost it
                self._client.run("ack", [unacked_index, unacked], [tag])
            return "behind"
        try:
            place = self._redis.adopt(queue, offer, tag, unacked_index, unacked, expire_ms)
        except ResponseError:
            self._placement.take_back(placed)
            raise
        if place == "due":
            self._placement.take_back(placed)
        return place

    def _place_early(self, queue: str, offer: Offer, expire_ms: int) -> Placed:
        if monotonic() < self._asks_again_at:
            return Placed([offer])
        try:
            return self._placement.place(queue, [offer], expire_ms, key_of=_content_of)
        except (JournalUnavailable, SQLAlchemyError) as error:
            others = ""
            if isinstance(error, JournalUnavailable):
                self._asks_again_at = monotonic() + PAUSE_S
                others = f". So do others that come too early, for {PAUSE_S:.0f} s"
            logger.warning(
                "the journal does not take a message of queue %r, which waits in Redis now: %s%s",
                *(queue, type(error).__name__, others),
            )
            return Placed([offer])


def _content_of(offer: Offer) -> bytes:
    """Returns what stays the same in a message when it comes back from a consumer that has died.

    Such a consumer may have written the row and died before the message left its hands.
    """
    message = read(as_bytes(offer.body))
    headers, properties, info = dict(headers_of(message)), dict(properties_of(message)), dict(info_of(message))
    headers.pop("redelivered", None)
    info.pop("redelivered", None)
    for name in ("delivery_tag", "delivery_info", DELIVERY_COUNT):
        properties.pop(name, None)
    same = [as_text(offer.id), offer.priority, message.get("body"), headers, properties, info]
    return json.dumps(same, sort_keys=True).encode()


class JournaledJobs(PartOfBoth[BulkJobs]):
    """Sends the messages of bulk jobs to where they belong, each id once.

    Rows come first, under a key made from job and id, so that they come once however often a task runs. Then the script
    that sends the other messages claims their ids in the guard.

    Args:
        redis: The part of the Redis store.
        journal: The tables.
        client: Redis.
        placement: Decides where a message waits.
    """

    def __init__(self, redis: BulkJobs, journal: Journal, client: StoreClient, placement: Placement) -> None:
        super().__init__(redis, journal)
        self.begin, self.new_run, self.finish, self.close = redis.begin, redis.new_run, redis.finish, redis.close
        self.find, self.of_stream, self.job_rate = redis.find, redis.of_stream, redis.job_rate
        self.claim_ids, self.sent, self.enqueued = redis.claim_ids, redis.sent, redis.enqueued
        self.excluded = redis.excluded
        self._client = client
        self._placement = placement

    def enqueue(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Enqueued:
        """Sends messages to one queue, each to where it belongs; see ``BulkJobs.enqueue``."""
        return self._redis.enqueue(queue, job, self._for_redis(queue, job, offers))

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Writes rows, and returns the commands for Redis; see ``BulkJobs.enqueue_commands``."""
        return self._redis.enqueue_commands(queue, job, self._for_redis(queue, job, offers))

    def _for_redis(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Sequence[Offer]:
        """Writes the rows of messages that the job has not sent. Returns what Redis gets.

        Raises:
            InvalidIfWaiting: The job asks what waits, which the script that guards its ids sees in Redis alone.
        """
        if job.if_waiting:
            raise InvalidIfWaiting(f"if_waiting={job.if_waiting!r} of a bulk job does not work with a journal")
        if job.staged or not self._may_write(job):
            return offers
        cutoff_ms = self._placement.cutoff_ms()
        _, far = self._placement.split([one for one in offers if one.body], cutoff_ms)
        kept = [one for one in offers if one.body and one.due] if self._placement.takes_all else far
        if not kept:
            return offers
        known = self._redis.sent(job.name, [(queue, as_text(one.id)) for one in kept])
        first: dict[str, Offer] = {}  # a job sends the first message of an id
        for one in offers:
            first.setdefault(as_text(one.id), one)
        new = [one for one, is_known in zip(kept, known, strict=True) if not is_known and first[as_text(one.id)] is one]
        self._placement.place(queue, new, key_of=partial(_key, job.name), cutoff_ms=cutoff_ms)
        elsewhere = set(map(id, far))
        return [one._replace(body="") if id(one) in elsewhere else one for one in offers]

    def publish(self, job: JobRun) -> Enqueued:
        """Sends some of the messages that a committed job has staged; see ``BulkJobs.publish``."""
        return self._redis.publish(job, lambda queue, offers: self._place_staged(queue, job, offers))

    def _place_staged(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> float:
        return self._placement.place(queue, offers, key_of=partial(_key, job.name)).cutoff_ms

    def _may_write(self, job: JobRun) -> bool:
        """Whether this run may write, so that the rows of a straggler do not stay behind."""
        state, run = self._client.ask("HMGET", self._client.keys.job(job.name), "state", "run")
        return state is not None and as_text(state) == "open" and int(run) == job.run


def _key(job: str, offer: Offer) -> bytes:
    return b"%b\0%b" % (as_bytes(job), as_bytes(offer.id))
