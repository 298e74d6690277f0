"""The messages that a channel holds, when a script fetches them: they are noted as unacked before delivery."""

from typing import TYPE_CHECKING, Any

from kombu.transport import redis as stock
from kombu.transport import virtual

from kombu_delayq.consume.acks import EarlyTag
from kombu_delayq.consume.fetched import FetchedMessage
from kombu_delayq.message import priority_of, redelivered, stamp, to_json
from kombu_delayq.store import Requeued

_QoS: Any = virtual.QoS if TYPE_CHECKING else stock.QoS


class FetchedQoS(_QoS):
    """kombu's QoS for messages that are in Redis as unacked already.

    Other messages, such as those of a fanout, are kombu's own.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        """Notes a message in hand."""
        if delivery_tag in self._held:
            virtual.QoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledges a message, with an event loop by the end of its turn, otherwise at once."""
        if delivery_tag not in self._held:
            super().ack(delivery_tag)
            return
        self.channel.fetcher.ack(EarlyTag(delivery_tag) if self._goes_on(delivery_tag) else delivery_tag)
        virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Acknowledges a message, or puts it back to be consumed after all others of its queue."""
        if delivery_tag not in self._held:
            super().reject(delivery_tag, requeue=requeue)
        elif not requeue:
            self.ack(delivery_tag)
        else:
            row = self._requeued(delivery_tag, self._delivered[delivery_tag])
            self.channel.store.fetching.requeue([row], "last", redelivers=True)
            self._held.pop(delivery_tag, None)
            virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Puts all messages in hand back, to be consumed next."""
        self._flush()
        fetched = {tag: message for tag, message in self._delivered.items() if tag in self._held}
        rows = [self._requeued(tag, message) for tag, message in reversed(fetched.items())]
        self.channel.store.fetching.requeue(rows, "next", redelivers=True)
        for tag in fetched:
            self._delivered.pop(tag, None)
            self._held.pop(tag, None)
        if self._delivered:
            super().restore_unacked(client)

    @property
    def _held(self) -> dict[str, str]:
        held: dict[str, str] = self.channel.fetcher.held
        return held

    def _goes_on(self, tag: str) -> bool:
        """Whether the task of a message runs, and holds a place until it ends."""
        message = self._delivered.get(tag)
        return isinstance(message, FetchedMessage) and message.goes_on

    def _requeued(self, tag: str, message: Any) -> Requeued:
        raw = redelivered(message._raw, **stamp())
        return Requeued(tag, self._held[tag], priority_of(raw), to_json(raw))
