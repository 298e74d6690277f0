"""Buries messages that are too late to run, and logs now and then what the limits of queues have done."""

from time import monotonic

from kombu.log import get_logger

from kombu_delayq.message.dead_letters import too_late
from kombu_delayq.message.fields import read, to_json
from kombu_delayq.redis.replies import readable
from kombu_delayq.store import TransportStore
from kombu_delayq.store.types import QueueForm, TooLate, Transferred

logger = get_logger(__name__)

#: A queue's messages that were too late are logged so often at most, and so is that it is held back, in s.
LOG_EVERY_S, LOG_HELD_EVERY_S = 60.0, 600.0


class Limits:
    """What a transfer worker does with a queue that has limits, beside the transfer itself."""

    def __init__(self) -> None:
        self._gone: dict[tuple[str, str], int] = {}  # queue and policy -> number of messages not logged yet
        self._logged_at: dict[tuple[str, str], float] = {}

    def apply(self, store: TransportStore, form: QueueForm, done: Transferred) -> Transferred:
        """Buries the messages of a transfer that are too late, and notes what is to be logged.

        Returns:
            The same result with the number of messages that turned out to have no body.
        """
        if done.too_late:
            letters = [(message, _letter(store, form, message, done.now_ms)) for message in done.too_late]
            buried, lost = store.delivery.bury(form, letters, store.options.dead_letter_queue)
            self._note(form.queue, "dead-letter", buried)
            done = done._replace(lost=done.lost + lost)
        self._note(form.queue, "drop", done.dropped)
        if done.held_back and self._is_time((form.queue, "rate"), LOG_HELD_EVERY_S):
            logger.info("queue %r is held back by its transfer_rate: more messages are due", readable(form.queue))
        return done

    def report(self, store: TransportStore) -> None:
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


def _letter(store: TransportStore, form: QueueForm, late: TooLate, now_ms: float) -> str | bytes:
    """Returns a message as a dead letter. Bytes that are no message become a dead letter as they are."""
    message, options = read(late.body), store.options
    if late.body is None or not message:
        return late.body or b""
    limits = options.limits_of(form.queue)
    most_ms = 0.0 if limits is None else limits.max_lateness_ms or 0.0
    return to_json(too_late(message, now_ms - float(late.due), most_ms, form.queue, options.dead_letter_queue))
