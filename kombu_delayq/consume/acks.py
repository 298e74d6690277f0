"""Acknowledgements that are gathered while an event loop turns, and sent together."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from kombu.log import get_logger

from kombu_delayq.connection.text import Command
from kombu_delayq.store import TransportStore

logger = get_logger(__name__)


class Acks:
    """Delivery tags of messages that are to be removed from Redis. Any thread may use it."""

    def __init__(self) -> None:
        self._tags: deque[str] = deque()

    def __bool__(self) -> bool:
        return bool(self._tags)

    def add(self, *tags: str) -> None:
        """Notes the messages as acknowledged."""
        self._tags.extend(tags)

    def take(self) -> list[str]:
        """Returns all tags, which the caller sends."""
        return drained(self._tags)

    def command(self, store: TransportStore, tags: Sequence[str], *, by_text: bool) -> list[Command]:
        """Returns the command that removes these messages, or nothing without any."""
        return [store.taking.ack_command(tags, by_text=by_text)] if tags else []

    def send(self, store: TransportStore) -> None:
        """Sends all tags now; one round trip. Keeps them if they cannot be sent."""
        if tags := self.take():
            try:
                self.report(store.taking.ack(tags))
            except BaseException:
                self.add(*tags)
                raise

    def report(self, missing: Sequence[str]) -> None:
        """Logs which messages this consumer held no more when it acknowledged them."""
        if missing:
            logger.warning(
                "%d messages were acknowledged that this consumer no longer held: others had or have them, too. The "
                "first has the delivery tag %s",
                *(len(missing), missing[0]),
            )


def drained(items: deque[Any]) -> list[Any]:
    """Empties a deque that other threads use, too. Returns what was in it."""
    found = []
    while items:
        try:
            found.append(items.popleft())
        except IndexError:
            break
    return found
