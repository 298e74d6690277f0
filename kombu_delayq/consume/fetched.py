"""Messages as a script of ours fetched them: with the delivery tag under which they are in hand."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kombu.log import get_logger
from kombu.serialization import registry
from kombu.transport import virtual
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from kombu_delayq.consume.acks import EndedTag
from kombu_delayq.message import JSON, PLACE, Message, from_json

if TYPE_CHECKING:
    from kombu_delayq.store import Outcome

logger = get_logger(__name__)

_Message: Any = object if TYPE_CHECKING else virtual.Message


class FetchedPayload(dict[str, Any]):
    """A message as its queue had it, with the delivery tag under which it is in hand, and the name of the queue.

    The tag stands beside the message, which keeps the delivery tag of its publisher: that one is the same each time the
    message is delivered, and wherever it goes from here.

    Attributes:
        has_eta: Whether it has an eta that its consumer can read; known once it is delivered.
        is_begun: Whether its task has gone to the pool, although it has an eta: Celery keeps such a task in a timer.
    """

    def __init__(self, message: Message, tag: str, queue: str) -> None:
        super().__init__(message)
        self.tag, self.queue = tag, queue
        self.has_eta = self.is_begun = False


class FetchedMessage(_Message):
    """kombu's message, which is acknowledged by the delivery tag under which it was fetched.

    Attributes:
        goes_on: Whether its task runs, and holds a place until it ends, even if the message is acknowledged before.
    """

    goes_on = False

    def __init__(self, payload: Message, channel: Any = None, **kwargs: Any) -> None:
        headers, properties = payload.get("headers"), payload["properties"]
        body = payload.get("body")
        self.errors: list[Any] = []
        try:
            if body:
                body = channel.decode_body(body, properties.get("body_encoding"))
            if type(body) is not bytes and not isinstance(body, str | None):
                raise TypeError(f"the body of a message is text, and not of type {type(body).__name__}")
        except Exception:  # as where kombu cannot decompress: its consumer hands the message to `on_decode_error`
            self.errors.append(sys.exc_info())
            body = str(body).encode(errors="replace")
        if not self.errors and (type(body) is not bytes or kwargs or (headers and "compression" in headers)):
            super().__init__(payload, channel=channel, **kwargs)
        else:  # what kombu's two classes do, in half the time
            self._raw, self._state, self._decoded_cache = payload, "RECEIVED", None
            self.channel, self.accept = channel, None
            self.body, self.headers, self.properties = body, headers or {}, properties
            self.content_type, self.content_encoding = payload.get("content-type"), payload.get("content-encoding")
            self.delivery_info = properties.get("delivery_info") or {}
            self.delivery_tag = properties["delivery_tag"]
        if isinstance(payload, FetchedPayload):
            self.delivery_tag = payload.tag

    def _decode(self) -> Any:
        if JSON in (self.accept or ()) and self.content_type == JSON and registry._decoders.get(JSON) is from_json:
            with suppress(Exception):  # kombu meets the same error, and raises one of its own
                return from_json(self.body)
        return super()._decode()

    def note_begun(self) -> None:
        """Notes that the task has gone to the pool, although it has an eta."""
        if isinstance(self._raw, FetchedPayload):
            self._raw.is_begun = True

    def begin(self) -> None:
        """Notes that its task runs now."""
        if PLACE in self.headers and isinstance(self._raw, FetchedPayload):
            self.goes_on = True
            self.channel.fetcher.going_on.add(self.delivery_tag)

    def end(self) -> None:
        """Notes that its task has ended: its place is free, and the process that ran it. Any thread may do so."""
        if not isinstance(self._raw, FetchedPayload):
            return
        if self.goes_on:
            self.goes_on = False
            self.channel.fetcher.going_on.discard(self.delivery_tag)
            if self.acknowledged:
                try:
                    self.channel.fetcher.ack(EndedTag(self.delivery_tag))
                except (RedisError, OSError) as error:  # the heartbeat sends it again
                    logger.info("the place of a task is free once Redis answers: %s", error)
        self.channel.fetcher.note_free()

    def let_go(self) -> None:
        """Notes that its task has ended, and that a script has taken the message and its place. For any thread."""
        tag = self.delivery_tag
        self.goes_on = False
        self.channel.fetcher.going_on.discard(tag)
        self.channel.fetcher.excuse(tag)
        self.channel.fetcher.held.pop(tag, None)
        self.ack = _is_gone  # an acknowledgement that Celery's loop has yet to make has nothing to do
        if not self.acknowledged:
            virtual.QoS.ack(self.channel.qos, tag)
            self._state = "REQUEUED"

    def count(self, outcome: "Outcome") -> None:
        """Counts what has become of the task for its queue, with the next heartbeat; any thread may do so."""
        if isinstance(self._raw, FetchedPayload):
            with suppress(RedisConnectionError):  # the connection is lost, and with it what its consumer had counted
                self.channel.consumer.count(self._raw.queue, outcome)


def _is_gone(multiple: bool = False) -> None:
    """Stands for ``ack`` of a message that a script has taken."""
