"""Hears of it when the next message of a queue is another one."""

from collections.abc import Callable, Iterable
from math import isfinite
from typing import NamedTuple

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import ResponseError

from kombu_delayq.redis import passes
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import DelayedQueue
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
        # What the leader tells consumers is a sign that the subscription lives, in place of a PING.
        self._pubsub.subscribe(keys.wake, *([keys.lists] if keys.groups is None else []))

    @property
    def follows(self) -> bool:
        """Whether the subscription has a channel of any queue in Redisson's layout."""
        return bool(self._of_channel)

    def follow(self, queues: Iterable[str]) -> None:
        """Subscribes to the channels of these queues in Redisson's layout, and ends other subscriptions in that layout.

        Queues whose names are not UTF-8 get no channel, only polls: after a lost connection the Redis client cannot
        subscribe to such channels again, and no JVM service can name them.
        """
        channels = ((LAYOUT_OF["redisson"].channel(self._keys, queue), queue) for queue in queues)
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
        if message is None or message["type"] == "unsubscribe" or as_text(message["channel"]) == self._keys.lists:
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
