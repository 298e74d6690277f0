"""Messages that were fetched, on their way to the callbacks of kombu's consumers."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from kombu.log import get_logger
from kombu.utils.encoding import bytes_to_str

from kombu_delayq.consume.acks import drained
from kombu_delayq.consume.early import NotAdopted
from kombu_delayq.consume.fetched import FetchedPayload
from kombu_delayq.message import Message, fault_of, from_json, priority_of, read
from kombu_delayq.store import Fetched, Requeued

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: When the callbacks of a turn of the event loop have taken longer together, in s, the next turn begins.
TURN_S = 0.005


class Deliveries:
    """Hands messages to the consumers of a channel, and puts those back that are not delivered.

    Args:
        channel: The channel.
        ack: Acknowledges a message by its delivery tag.
        on_priority: Called with the queue and the number of the list of each message that is delivered.

    Attributes:
        error: What the latest callback that failed has raised.
    """

    def __init__(
        self,
        channel: Any,
        ack: Callable[[str], None],
        on_priority: Callable[[str, int], None],
    ) -> None:
        self._channel = channel
        self._ack = ack
        self._on_priority = on_priority
        self._held: dict[str, str] = channel.consumer.held
        self._fetched: deque[Fetched] = deque()
        self._busy_since: float | None = None
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._fetched)

    @property
    def busy_s(self) -> float:
        """For how long a callback has been running, in s; 0 if none runs."""
        since = self._busy_since
        return 0.0 if since is None else monotonic() - since

    @property
    def are_under_way(self) -> bool:
        """Whether a callback runs."""
        return self._busy_since is not None

    def add(self, found: Iterable[Fetched]) -> None:
        """Notes messages that were fetched, to be delivered in this order."""
        self._fetched.extend(map(self.hold, found))

    def hold(self, fetched: Fetched) -> Fetched:
        """Notes a message as one in hand."""
        if fetched.tag:
            self._held[fetched.tag] = fetched.queue
        return fetched

    def deliver(self) -> Message | None:
        """Delivers the next message. Returns it, or None if there was none to deliver."""
        while self._fetched:
            try:
                fetched = self._fetched.popleft()
            except IndexError:  # another thread has put it back
                return None
            if fetched.queue not in self._channel.connection._callbacks:
                self._put_back([fetched], self._channel.store)
            elif (message := self.message_of(fetched)) is not None:
                try:
                    self._call(message, fetched.queue)
                except NotAdopted as error:
                    self._fetched.appendleft(fetched)
                    raise error.reason from None
                return message
        return None

    def deliver_turn(self, *, before_wait: bool, at_half: Callable[[], object]) -> bool:
        """Delivers messages until an event loop has to turn. Returns whether it has to turn soon.

        The loop turns after a message with an eta that Celery has passed to its timer, even one that is due: of several
        with the same eta the timer would choose any. And it turns when callbacks have taken their time, such as tasks
        of a solo pool: what they have acknowledged is sent then.

        Args:
            before_wait: Whether the loop waits next, for as long as its timer has said before. Then it has to turn
                soon also after the last message, if that has an eta.
            at_half: Called once when half of the messages are delivered, unless they take longer than a turn.
        """
        begun, delivered, half = monotonic(), 0, (len(self._fetched) + 1) // 2
        while (message := self.deliver()) is not None:
            delivered += 1
            if (self._fetched or before_wait) and _waits_for_eta(message):
                return True
            if self._fetched and monotonic() - begun > TURN_S:
                return True
            if self._fetched and delivered == half:
                at_half()
        return False

    def message_of(self, fetched: Fetched) -> Message | None:
        """Returns a message as kombu's consumers get it. Drops one that they cannot read, with an error in the log."""
        try:
            message: Message = from_json(fetched.body)
            if fetched.tag:
                message["properties"].setdefault("delivery_tag", fetched.tag)
                message = FetchedPayload(message, fetched.tag, fetched.queue)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            fault = fault_of(bytes(fetched.body))
            logger.error("queue %r had something that is no message, and that is dropped: %s", fetched.queue, fault)
            if fetched.tag:
                self._ack(fetched.tag)
            return None
        return message

    def put_back(self, store: "DelayStore", queue: str | None = None) -> None:
        """Puts messages that have not been delivered back, to be consumed next.

        Args:
            store: The store to use.
            queue: Name of their queue; None for those of all queues.
        """
        drawn = drained(self._fetched)
        self._fetched.extend(fetched for fetched in drawn if queue not in (None, fetched.queue))
        given = [fetched for fetched in drawn if queue in (None, fetched.queue)]
        try:
            self._put_back(given, store)
        except BaseException:
            self._fetched.extendleft(reversed(given))
            raise

    def _call(self, message: Message, queue: str) -> None:
        self._on_priority(queue, self._channel.store.fetching.step_of(priority_of(message)))
        self._channel.consumer.waits.note(queue, message)
        before, self._busy_since = self._busy_since, monotonic()
        try:
            self._channel.connection._deliver(message, queue)
        except NotAdopted:
            raise
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._busy_since = before

    def _put_back(self, given: Sequence[Fetched], store: "DelayStore") -> None:
        rows = []
        for fetched in reversed(given):
            row = Requeued(fetched.tag, fetched.queue, priority_of(read(bytes(fetched.body))), fetched.body)
            if fetched.tag:
                rows.append(row)
            else:
                store.delivery.give_back(row.queue, row.priority, bytes_to_str(row.body))
        store.fetching.requeue(rows, "next")
        for row in rows:
            self._held.pop(row.tag, None)


def _waits_for_eta(message: Message) -> bool:
    """Whether the task of a message has an eta, and has not gone to the pool all the same."""
    return isinstance(message, FetchedPayload) and message.has_eta and not message.is_begun
