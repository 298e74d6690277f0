"""Receives the announcements of new heads."""

from collections.abc import Iterable
from math import isfinite
from types import TracebackType
from typing import NamedTuple, Self

from redis import Redis
from redis.exceptions import ResponseError

from kombu_delayq.redis.errors import passes
from kombu_delayq.redis.replies import as_text, is_utf8
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import QueueForm


class Wake(NamedTuple):
    """An announcement.

    Attributes:
        form: The queue that has a new head, and its layout; None if announcements of any queue may have been
            missed before this one.
        due_ms: When the new head is due, ms since the epoch; 0 if announcements of this queue may have been missed.
    """

    form: QueueForm | None
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
        self._of_channel: dict[str, QueueForm] = {}
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
        wanted = {channel: QueueForm(queue, "redisson") for channel, queue in channels if is_utf8(channel)}
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
        form = self._of_channel.get(as_text(message["channel"]))
        if message["type"] != "message":
            return Wake(form, 0.0)  # subscribed, perhaps again: earlier announcements may be lost
        if form is not None:
            return Wake(form, _due_ms(message["data"]))
        due_ms, blank, queue = as_text(message["data"]).partition(" ")
        return Wake(QueueForm(queue, "hash") if blank else None, _due_ms(due_ms))

    def close(self) -> None:
        """Ends the subscription and closes its connection."""
        self._pubsub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _due_ms(data: bytes | str) -> float:
    """Returns a due time, or 0 for any other text, which makes the worker look: any client may publish there."""
    try:
        due_ms = float(data)
    except ValueError:
        return 0.0
    return due_ms if isfinite(due_ms) else 0.0
