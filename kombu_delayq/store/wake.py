"""When the next message of each queue is due, and who hears of it when that changes."""

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from types import TracebackType
from typing import NamedTuple, Self

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis.errors import passes
from kombu_delayq.redis.replies import time_ms
from kombu_delayq.store.client import ScriptCall, StoreClient, StorePart
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import DelayedQueue, QueueHeads
from kombu_delayq.text import as_text, is_utf8

logger = get_logger(__name__)

#: Longest single wait for an announcement, in s. A transfer worker may notice a stop only after this time.
LISTEN_S = 0.2


class Wake(NamedTuple):
    """An announcement.

    Attributes:
        delayed: The queue that has a new head, and its layout; None if announcements of any queue may have been
            missed before this one.
        due_ms: When the new head is due, ms since the epoch; 0 if announcements of this queue may have been missed.
    """

    delayed: DelayedQueue | None
    due_ms: float


class WakeRefused(Exception):
    """Redis refuses a subscription to new heads: an ACL forbids a channel, or the server forbids the command."""


class WakeListener:
    """A subscription to the announcements of new heads.

    Args:
        client: A plain Redis client.
        keys: Names of the channels.
    """

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._keys = keys
        self._of_channel: dict[str, DelayedQueue] = {}
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(keys.wake)

    @property
    def follows(self) -> bool:
        """Whether the subscription has a channel of any queue in Redisson's layout."""
        return bool(self._of_channel)

    def follow(self, queues: Iterable[str]) -> None:
        """Subscribes to the channels of these queues in Redisson's layout, and ends other subscriptions in that layout.

        Queues whose names are not UTF-8 get no channel, only polls: after a lost connection the Redis client cannot
        subscribe to such channels again, and no JVM service can name them.
        """
        channels = ((self._keys.channel(queue), queue) for queue in queues)
        wanted = {channel: DelayedQueue(queue, "redisson") for channel, queue in channels if is_utf8(channel)}
        new, old = wanted.keys() - self._of_channel.keys(), self._of_channel.keys() - wanted.keys()
        self._of_channel = wanted
        if new:
            self._pubsub.subscribe(*sorted(new))
        if old:
            self._pubsub.unsubscribe(*sorted(old))

    def wait(self, timeout_s: float) -> Wake | None:
        """Waits for one announcement, at most ``timeout_s``.

        Raises:
            WakeRefused: Redis refuses a channel; the subscription hears nothing more.
        """
        try:
            message = self._pubsub.get_message(timeout=max(timeout_s, 0.0))
        except ResponseError as error:
            if passes(error):
                raise
            raise WakeRefused(str(error)) from error
        if message is None or message["type"] == "unsubscribe":
            return None
        delayed = self._of_channel.get(as_text(message["channel"]))
        if message["type"] != "message":
            return Wake(delayed, 0.0)  # subscribed, perhaps again: earlier announcements may be lost
        if delayed is not None:
            return Wake(delayed, _due_ms(message["data"]))
        due_ms, blank, queue = as_text(message["data"]).partition(" ")
        return Wake(DelayedQueue(queue, "hash") if blank else None, _due_ms(due_ms))

    def close(self) -> None:
        """Ends the subscription and closes its connection."""
        self._pubsub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Announcements:
    """A subscription to new heads that is closed and opened again, with as many channels as Redis allows."""

    def __init__(self) -> None:
        self._listener: WakeListener | None = None
        self._may_listen = True
        self._may_follow = True  # queues in Redisson's layout

    @property
    def are_heard(self) -> bool:
        """Whether the subscription is open."""
        return self._listener is not None

    def open(self, listen: Callable[[], WakeListener], *, wanted: bool = True) -> None:
        """Subscribes by ``listen``, unless Redis has refused it before; closes what is not ``wanted``."""
        if not wanted:
            self.close()
        elif self._listener is None and self._may_listen:
            self._listener = listen()

    def close(self) -> None:
        """Ends the subscription, if there is one."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def follow(self, queues: Iterable[str]) -> None:
        """Subscribes to these queues in Redisson's layout, and to no others in that layout."""
        if self._listener is not None and self._may_follow:
            self._listener.follow(queues)

    def wait(self, timeout_s: float) -> Wake | None:
        """Waits for one announcement, at most ``timeout_s``.

        Raises:
            WakeRefused: Redis refuses a channel; see ``narrow``.
        """
        return None if self._listener is None else self._listener.wait(timeout_s)

    def narrow(self, error: WakeRefused) -> None:
        """Closes the subscription that Redis has refused. The next one has fewer channels.

        Redis does not name the channel that it refuses. So the next subscription leaves out the channels of Redisson's
        layout; if this one had none of them, there is no next subscription.
        """
        follows = self._listener is not None and self._listener.follows
        self.close()
        if follows:
            self._may_follow = False
        else:
            self._may_listen = False
        what = "delayed messages in Redisson's layout" if follows else "delayed messages"
        logger.warning("new %s are noticed only every poll interval: %s", what, error)


def _due_ms(data: bytes | str) -> float:
    """Returns a due time, or 0 for any other text, which makes the worker look: any client may publish there."""
    try:
        due_ms = float(data)
    except ValueError:
        return 0.0
    return due_ms if isfinite(due_ms) else 0.0


class Heads(StorePart):
    """Reads the heads of queues, for transfer workers.

    Args:
        client: The client of the store.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        self._had_heads: frozenset[str] = frozenset()  # queues that had messages at the last look
        #: The store's own layout, and the other one, whose messages are drained as long as Redis allows it.
        self._layouts: Sequence[str] = sorted(LAYOUTS, key=lambda layout: layout != client.layout)

    def heads(self, queues: Sequence[str]) -> QueueHeads:
        """Reads when the next message of each queue is due, in either layout; at most two round trips.

        A queue that had no message at the last look costs one command, and no script, until it has one. But a queue of
        each node is always read by the script, for the clock of the node.

        A node that does not answer holds up no queue of the others: its queues are left out. If no node answers, that
        is an error.

        Rights for the store's own layout are enough. Once they are all that Redis gives, the other layout is no longer
        read.
        """
        try:
            return self._heads(queues, self._layouts)
        except NoPermissionError as error:
            own = [self._client.layout]
            if self._layouts == own:
                raise
            found = self._heads(queues, own)
            self._layouts = own
            logger.info("delayed messages are looked for in the layout %r only: %s", *own, error)
            return found

    def listen(self) -> WakeListener:
        """Subscribes to the announcements of new heads."""
        return WakeListener(self._client.redis, self._keys)

    def _heads(self, queues: Sequence[str], layouts: Sequence[str]) -> QueueHeads:
        dues = {queue: [self._client.due(queue, one) for one in layouts] for queue in queues}
        read = {*self._client.one_a_node({queue: keys[0] for queue, keys in dues.items()}), *self._had_heads}
        empty = [queue for queue in dues if queue not in read]
        found = self._client.replies([("EXISTS", *dues[queue]) for queue in empty]) if empty else []
        errors = [reply for reply in found if isinstance(reply, Exception)]
        there = [queue for queue, reply in zip(empty, found, strict=True) if not isinstance(reply, Exception) and reply]
        asked = [queue for queue in dues if queue in read or queue in there]
        calls: list[ScriptCall] = [(dues[queue], [], "hash") for queue in asked]
        replies, _ = self._client.run_each("heads", calls)
        errors += [reply for reply in replies if isinstance(reply, Exception)]
        refused = [error for error in errors if isinstance(error, ResponseError)]
        if refused:
            raise refused[0]
        now_ms, due_ms = 0.0, dict[DelayedQueue, float]()
        for queue, reply in zip(asked, replies, strict=True):
            if not isinstance(reply, Exception):
                now_ms = max(now_ms, float(reply[0]))
                due_ms |= {
                    DelayedQueue(queue, one): float(due) for one, due in zip(layouts, reply[1:], strict=True) if due
                }
        if not now_ms:
            now_ms = time_ms(self._client.redis.time())
        self._had_heads = self._had_heads.difference(queues).union(delayed.queue for delayed in due_ms)
        return QueueHeads(now_ms, due_ms)
