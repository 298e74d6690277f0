"""The messages that a channel holds, when a script takes them: they are noted as unacked before they are delivered."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kombu.transport import redis as stock
from kombu.transport import virtual
from redis.exceptions import ConnectionError as RedisConnectionError

from kombu_delayq.message.fields import Message, priority_of, to_json
from kombu_delayq.message.ready import stamp
from kombu_delayq.message.unacked import redelivered
from kombu_delayq.store.minutes import Outcome
from kombu_delayq.store.types import Requeued

_QoS: Any = virtual.QoS if TYPE_CHECKING else stock.QoS
_Message: Any = object if TYPE_CHECKING else virtual.Message


class FetchedPayload(dict[str, Any]):
    """A message as its queue had it, with the delivery tag under which it is in hand, and the name of the queue.

    The tag stands beside the message, which keeps the delivery tag of its publisher: that one is the same each time the
    message is delivered, and wherever it goes from here.
    """

    def __init__(self, message: Message, tag: str, queue: str) -> None:
        super().__init__(message)
        self.tag, self.queue = tag, queue


class FetchedMessage(_Message):
    """kombu's message, which is acknowledged by the delivery tag under which it was fetched."""

    def __init__(self, payload: Message, channel: Any = None, **kwargs: Any) -> None:
        headers, properties = payload.get("headers"), payload["properties"]
        body = payload.get("body")
        if body:
            body = channel.decode_body(body, properties.get("body_encoding"))
        if type(body) is not bytes or kwargs or (headers and "compression" in headers):
            super().__init__(payload, channel=channel, **kwargs)
        else:  # what kombu's two classes do, in half the time
            self._raw, self._state, self._decoded_cache = payload, "RECEIVED", None
            self.channel, self.accept = channel, None
            self.errors: list[Any] = []
            self.body, self.headers, self.properties = body, headers or {}, properties
            self.content_type, self.content_encoding = payload.get("content-type"), payload.get("content-encoding")
            self.delivery_info = properties.get("delivery_info") or {}
            self.delivery_tag = properties["delivery_tag"]
        if isinstance(payload, FetchedPayload):
            self.delivery_tag = payload.tag

    def count(self, outcome: Outcome) -> None:
        """Counts what has become of the task for its queue, with the next heartbeat; any thread may do so."""
        if isinstance(self._raw, FetchedPayload):
            with suppress(RedisConnectionError):  # the connection is lost, and with it what its consumer had counted
                self.channel.consumer.count(self._raw.queue, outcome)


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
        self.channel.fetcher.ack(delivery_tag)
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

    def _requeued(self, tag: str, message: Any) -> Requeued:
        raw = redelivered(message._raw, **stamp())
        return Requeued(tag, self._held[tag], priority_of(raw), to_json(raw))
