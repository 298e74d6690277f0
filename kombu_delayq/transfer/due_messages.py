"""Transfers the messages of all queues that are due."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.message import pages, read, to_json, too_late
from kombu_delayq.redis import NotPrimary
from kombu_delayq.store import LAYOUT_OF, DelayedQueue, DelayStore, Look, QueueHeads, TooLate, Transferred
from kombu_delayq.text import readable
from kombu_delayq.transfer.due_times import DueTimes

logger = get_logger(__name__)

#: After how long a queue is tried again whose node is away, in s.
AWAY_S = 0.25
#: Number of queues whose heads are read at once.
PAGE = 2000
#: A queue's messages that were too late are logged so often at most, and so is that it is held back, in s.
LOG_EVERY_S, LOG_HELD_EVERY_S = 60.0, 600.0

#: Called after each transfer that moved messages, with the name of the queue and the result.
OnTransfer = Callable[[str, Transferred], None]


class DueMessages:
    """Knows when messages are due, and transfers them a batch of each queue at a time.

    A queue that cannot be transferred, such as one with a key of another type in the way, holds up no other; in a
    cluster neither does one whose node is away.

    Args:
        on_transfer: See ``OnTransfer``.

    Attributes:
        due_times: When the head of each queue is due.
    """

    def __init__(self, on_transfer: OnTransfer | None) -> None:
        self.due_times = DueTimes()
        self._on_transfer = on_transfer
        self._refused: set[DelayedQueue] = set()
        self._in_other_layout: set[DelayedQueue] = set()
        #: Queues in a shared layout: those that have messages, and those whose last one others have taken since.
        self._shared: set[DelayedQueue] = set()
        self._left: set[DelayedQueue] = set()
        self._limits = Limits()
        self._is_ready = False

    def get_ready(self, store: DelayStore) -> None:
        """Calls the transfer of a queue of which nothing is due, once, so that no due message waits for the first call.

        That call reads and compiles what the next ones use, here and in Redis, which takes some 20 ms.
        """
        if self._is_ready or self.due_times.next_s() <= 0:
            return
        for queue in self.due_times.queues[:1]:
            self._is_ready = True
            self.transfer_batch(store, DelayedQueue(queue, store.layout))

    def look(
        self,
        store: DelayStore,
        registered: Iterable[str],
        meanwhile: Callable[[], object] = bool,
        look: Look | None = None,
    ) -> None:
        """Reads from Redis when the head of each queue is due, and registers queues that nobody has registered.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues.
            meanwhile: Called now and then while there are many queues, to transfer what is due.
            look: What Redis has just said about some of the queues; it is asked for the others only.
        """
        self._limits.report(store)
        shared = set[DelayedQueue]()
        queues = self.due_times.queues
        if look is not None:
            shared |= self._update(store, look.heads, [queue for queue in queues if queue in look.queues], registered)
            queues = [queue for queue in queues if queue not in look.queues]
        # Without any queue, Redis is asked for its clock.
        for number, page in enumerate(list(pages(queues, PAGE)) or ([[]] if look is None else [])):
            if number:
                meanwhile()
            shared |= self._update(store, store.delivery.heads(page), page, registered)
        self._left = (self._left | self._shared) - shared
        self._shared = shared

    def _update(
        self, store: DelayStore, heads: QueueHeads, queues: Sequence[str], registered: Iterable[str]
    ) -> set[DelayedQueue]:
        """Takes over the heads of some queues. Returns those that have messages in a layout that is shared."""
        self.due_times.update(heads, queues)
        self._notice(store, heads.due_ms, registered)
        return set(filter(_is_shared, heads.due_ms))

    def _notice(self, store: DelayStore, delayed_queues: Iterable[DelayedQueue], registered: Iterable[str]) -> None:
        """Notices queues in the other layout, and queues that nobody has registered."""
        for delayed in delayed_queues:
            if delayed.layout != store.layout and delayed not in self._in_other_layout:
                self._in_other_layout.add(delayed)
                _warn_of_other_layout(store, delayed)
            if delayed.queue not in registered:  # its first message is another client's
                store.queues.know(delayed.queue)

    def note(self, delayed: DelayedQueue, due_ms: float, registered: set[str]) -> None:
        """Notes an announced head. Its queue counts as registered until the next look at the names."""
        self.due_times.note_head(delayed, due_ms)
        if _is_shared(delayed):
            self._shared.add(delayed)
        registered.add(delayed.queue)

    def clear(self, store: DelayStore) -> None:
        """Removes what is left in Redis of queues whose last message another client has taken; a transfer does that."""
        for delayed in tuple(self._left):
            self.transfer_batch(store, delayed)
            self._left.discard(delayed)

    def with_channels(self, store: DelayStore) -> Iterable[str]:
        """Returns the names of the queues that may have messages in a layout that is shared."""
        if LAYOUT_OF[store.layout].is_shared:
            return self.due_times.queues
        others = {delayed.queue for delayed in self._in_other_layout}
        return others and others.intersection(self.due_times.queues)

    def transfer(self, store: DelayStore) -> None:
        """Transfers one batch of each queue that has messages due."""
        for delayed in self.due_times.due():
            self.transfer_batch(store, delayed)

    def transfer_batch(self, store: DelayStore, delayed: DelayedQueue) -> Transferred | None:
        """Transfers one batch of a queue. Returns None if Redis refuses it, or its node is away; the log says so."""
        try:
            done = self._limits.apply(store, delayed, store.delivery.transfer(*delayed))
        except NotPrimary:
            raise
        except (RedisError, OSError) as error:
            if not (isinstance(error, ResponseError) or store.pool.is_partial(error)):
                raise
            self._put_off(delayed, error, inf if isinstance(error, ResponseError) else AWAY_S)
            return None
        self._refused.discard(delayed)
        self._limits.report(store)
        self.due_times.note_transfer(delayed, done)
        if done.next_due_ms is None:
            self._shared.discard(delayed)
        self._report(delayed.queue, done)
        return done

    def _put_off(self, delayed: DelayedQueue, error: Exception, for_s: float) -> None:
        self.due_times.put_off(delayed, for_s)
        if delayed not in self._refused:
            self._refused.add(delayed)
            logger.error(
                "delayed messages of queue %r stay where they are, and are tried again: %s",
                delayed.queue,
                readable(error),
            )

    def _report(self, queue: str, done: Transferred) -> None:
        if done.lost:
            logger.error("queue %r: %d delayed messages had no body and are lost", queue, done.lost)
        if done.moved and self._on_transfer is not None:
            self._on_transfer(queue, done)


def _is_shared(delayed: DelayedQueue) -> bool:
    return LAYOUT_OF[delayed.layout].is_shared


def _warn_of_other_layout(store: DelayStore, delayed: DelayedQueue) -> None:
    logger.warning(
        "queue %r has delayed messages in the layout %r, while the transport option layout is %r here: both are "
        "delivered, but not found here by their ids. Set the option alike everywhere and, with all processes stopped, "
        "move them with `delayq convert %s --to %s`",
        delayed.queue,
        delayed.layout,
        store.layout,
        readable(delayed.queue),
        store.layout,
    )


class Limits:
    """What a transfer worker does with a queue that has limits, beside the transfer itself."""

    def __init__(self) -> None:
        self._gone: dict[tuple[str, str], int] = {}  # queue and policy -> number of messages not logged yet
        self._logged_at: dict[tuple[str, str], float] = {}

    def apply(self, store: DelayStore, delayed: DelayedQueue, done: Transferred) -> Transferred:
        """Buries the messages of a transfer that are too late, and notes what is to be logged.

        Returns:
            The same result with the number of messages that turned out to have no body.
        """
        if done.too_late:
            letters = [(message, _letter(store, delayed, message, done.now_ms)) for message in done.too_late]
            buried, lost = store.delivery.bury(delayed, letters, store.options.dead_letter_queue)
            self._note(delayed.queue, "dead-letter", buried)
            done = done._replace(lost=done.lost + lost)
        self._note(delayed.queue, "drop", done.dropped)
        if done.held_back and self._is_time((delayed.queue, "rate"), LOG_HELD_EVERY_S):
            logger.info("queue %r is held back by its transfer_rate: more messages are due", readable(delayed.queue))
        return done

    def report(self, store: DelayStore) -> None:
        """Logs what became of messages that were too late, each queue once in ``LOG_EVERY_S``."""
        for (queue, policy), count in [*self._gone.items()]:
            if self._is_time((queue, policy), LOG_EVERY_S):
                del self._gone[queue, policy]
                to = (
                    f"went to the dead letters in {store.options.dead_letter_queue!r}"
                    if policy != "drop"
                    else "are dropped"
                )
                logger.warning(
                    "queue %r: %d messages were later than max_lateness and %s", readable(queue), count, readable(to)
                )

    def _note(self, queue: str, policy: str, count: int) -> None:
        if count:
            self._gone[queue, policy] = self._gone.get((queue, policy), 0) + count

    def _is_time(self, what: tuple[str, str], every_s: float) -> bool:
        at = self._logged_at.get(what)
        if at is not None and monotonic() - at < every_s:
            return False
        self._logged_at[what] = monotonic()
        return True


def _letter(store: DelayStore, delayed: DelayedQueue, late: TooLate, now_ms: float) -> str | bytes:
    """Returns a message as a dead letter. Bytes that are no message become a dead letter as they are."""
    message, options = read(late.body), store.options
    if late.body is None or not message:
        return late.body or b""
    limits = options.limits_of(delayed.queue)
    most_ms = 0.0 if limits is None else limits.max_lateness_ms or 0.0
    return to_json(too_late(message, now_ms - float(late.due), most_ms, delayed.queue, options.dead_letter_queue))
