"""Hears the announcements of new heads."""

from types import TracebackType
from typing import NamedTuple, Self

from redis import Redis


class Wake(NamedTuple):
    """An announcement.

    Attributes:
        queue: Which queue has a new head; None when announcements may have been missed before this one.
        due_ms: When the new head is due, ms since the epoch.
    """

    queue: str | None
    due_ms: float


class WakeListener:
    """A subscription to the announcements of new heads.

    Args:
        client: A plain Redis client.
        channel: Name of the channel.
    """

    def __init__(self, client: Redis, channel: str) -> None:
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(channel)

    def wait(self, timeout_s: float) -> Wake | None:
        """Waits for one announcement, at most ``timeout_s``."""
        message = self._pubsub.get_message(timeout=max(timeout_s, 0.0))
        if message is None:
            return None
        if message["type"] != "message":
            return Wake(None, 0.0)  # (re)subscribed; what was announced before is lost
        due_ms, queue = message["data"].decode().split(" ", 1)
        return Wake(queue, float(due_ms))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pubsub.close()
