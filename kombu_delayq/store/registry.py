"""Which queues are known: those in which messages wait."""

from functools import cached_property
from math import inf
from time import monotonic
from typing import Any, TypeVar

from kombu.log import get_logger
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.redis import Call, is_full
from kombu_delayq.store.client import MOST_QUEUES, StoreClient
from kombu_delayq.text import as_text

logger = get_logger(__name__)
R = TypeVar("R")

#: A process registers a queue to which it publishes at least so often, in s, so that a queue is found again whose name
#: was lost, such as when another publisher died right after the first message.
NOTED_S = 60.0
#: What scripts answer that bring a message into a queue which held others, or bring none: see ``Offered.place``.
_NOT_FIRST = frozenset(("head", "behind", "due", "gone", "waits", "cancelled", "repeated"))


class QueueRegistry:
    """Registers the queues in which messages wait: transfer workers look only at these.

    The names are in another slot than a queue. So a caller that brings the first message into a queue adds the name
    after that, and ``Queues.forget_empty`` removes the name of a queue without messages, looks again, and adds it back
    if there is a message now. Whichever comes later finds the other's work done, so a queue with messages has its name.
    Between the two, the leading transfer worker has heard of the message. If a publisher dies there, the next message
    after ``NOTED_S`` brings the name, and so does a consumer of the queue.

    Of several nodes, that of the names may be away while that of the queue is there. Then the message is stored all the
    same, and the name is added later, by this process or by the leading transfer worker. So it is in a full Redis.
    """

    def __init__(self, client: StoreClient) -> None:
        self._client = client
        self._noted: dict[str, float] = {}  # when the name of a queue was last added, in s of ``monotonic``
        self._unnoted: set[str] = set()  # names still to be added

    def run(self, queue: str, call: Call[R]) -> R:
        """Runs a script that brings messages into a queue, and registers the queue if the first one is among them.

        One round trip, and one more for a first message. The call is made of ``StoreClient.into``, which has checked
        the name of the queue. Returns the reply of the script.
        """
        reply = self._client.run(call)
        self.note(queue, reply)
        return reply

    def note(self, queue: str, reply: Any) -> None:
        """Registers a queue if a script's reply says that it held no messages before, or if that was long ago.

        Args:
            queue: Name of the queue.
            reply: The reply of a script that brings messages: the place of a message in its queue, as in ``Offered``,
                alone, or as the first or the last of several items.
        """
        if isinstance(reply, str):  # of a single message, whose publisher waits
            is_first = reply not in _NOT_FIRST
        else:
            ends = (reply[0], reply[-1]) if isinstance(reply, list | tuple) and reply else (reply,)
            is_first = not any(isinstance(end, bytes | str) and as_text(end) in _NOT_FIRST for end in ends)
        if is_first or monotonic() - self._noted.get(queue, -inf) > NOTED_S:
            self.add(queue)

    def add(self, queue: str) -> bool:
        """Registers a queue, and those that could not be registered before. Returns whether Redis has the name.

        It does not wait for a node that is away, nor for a full Redis: the name is added later.

        Raises:
            redis.exceptions.ResponseError: Redis refuses the name, such as where the key has another type.
        """
        names = {queue, *list(self._unnoted)}
        try:
            self._names.ask("SADD", self._client.keys.queues, *sorted(names))
        except (RedisError, OSError) as error:
            if str(error).startswith("WRONGTYPE"):  # Redis does not say which key
                key = self._client.keys.queues
                raise ResponseError(f"WRONGTYPE key {key} holds no set, kombu-delayq keeps a set there") from error
            if not (self._client.pool.is_partial(error) or is_full(error)):
                raise
            self._unnoted.add(queue)
            logger.debug("queue %r is not registered yet: %s", queue, error)
            return False
        self._unnoted.difference_update(names)
        if len(self._noted) >= MOST_QUEUES:  # a queue that is forgotten here is registered once more
            self._noted.clear()
        self._noted |= dict.fromkeys(names, monotonic())
        return True

    @cached_property
    def _names(self) -> StoreClient:
        """Sends the commands for the names."""
        return self._client.aside()
