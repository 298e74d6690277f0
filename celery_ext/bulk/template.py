"""Messages as Celery makes them, with slots for what differs from one to the next.

Each template is a message that Celery itself has made, so that its fields are Celery's, of whatever version.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from kombu.connection import Connection
from kombu.transport.virtual import BrokerState
from kombu.utils.json import dumps

#: What differs from message to message, in the order in which ``Template.fill`` takes them. Each is JSON text.
SLOTS = (
    *("body", "id", "eta", "expires", "expiration", "group", "root_id", "parent_id"),
    *("argsrepr", "kwargsrepr", "headers", "tag"),
)
#: What stands for a slot; nothing of an app's has the same.
MARK = {name: f"delayq-slot-{name}-{uuid4()}" for name in SLOTS}
#: What stands for an expiry while Celery makes the message: it counts with it.
EXPIRES = datetime(9999, 1, 1, tzinfo=UTC)
#: How the marks look in the message. The header that stands for further ones goes with the comma before it.
_WRITTEN = {f'"{mark}"': name for name, mark in MARK.items()} | {f', "{MARK["headers"]}": null': "headers"}
_WRITTEN_MARKS = re.compile(f"({'|'.join(map(re.escape, _WRITTEN))})")


class NoTemplate(Exception):
    """Such a message goes to no list, or to several."""


class Template:
    """A message with slots.

    Args:
        queue: The list that it goes to.
        message: As kombu's virtual transports make it, with marks in its slots.
        serializer: How its body is written.
        compression: How its body is compressed, or None.
        expires: Expiry that counts for messages without their own, as Celery takes it; or None.
    """

    def __init__(
        self, queue: str, message: dict[str, Any], serializer: str, compression: str | None, expires: Any
    ) -> None:
        self.queue = queue
        self.serializer = serializer
        self.compression = compression
        self.expires = expires
        self.priority = int(message["properties"].get("priority") or 0)
        info = message["properties"]["delivery_info"]
        #: Exchange and routing key.
        self.way: tuple[str, str] = info["exchange"], info["routing_key"]
        text, *rest = _WRITTEN_MARKS.split(dumps(message))
        self._format = "%s".join(piece.replace("%", "%%") for piece in (text, *rest[1::2]))
        self._order = [SLOTS.index(_WRITTEN[mark]) for mark in rest[::2]]
        self._pick = itemgetter(*self._order)

    def fill(self, slots: Sequence[str]) -> str:
        """Returns a message. slots: JSON text for each of ``SLOTS``; ``headers`` begins with a comma."""
        text: str = self._format % self._pick(slots)
        return text

    def filled(self, columns: Sequence[Iterable[str]]) -> Iterator[str]:
        """Yields many messages. columns: for each of ``SLOTS``, as of ``fill``, one a message."""
        return map(self._format.__mod__, zip(*(columns[at] for at in self._order), strict=False))


class Publish(NamedTuple):
    """What Celery wants to be published.

    Attributes:
        body: Positional arguments, keyword arguments, and what comes with them.
        options: Of ``Producer.publish``.
    """

    body: Any
    options: dict[str, Any]


class Catcher:
    """A broker of its own that keeps what Celery sends.

    Args:
        connection: Of kombu, in memory.
        make_producer: Makes a producer of it, as ``app.amqp.Producer``.
    """

    def __init__(self, connection: Any, make_producer: Callable[..., Any]) -> None:
        self.channel = connection.default_channel
        self.channel._put, self.channel._put_fanout = self._put, self._refuse
        self.producer = make_producer(connection, auto_declare=False)
        #: What was published last.
        self.published: Publish | None = None
        self._publish = self.producer.publish
        self.producer.publish = self._note
        self._messages: list[tuple[str, dict[str, Any]]] = []

    def template(self, of: str, expires: Any = None, said: Mapping[str, Any] = MappingProxyType({})) -> Template:
        """Returns the only message that was sent, as a template.

        Args:
            of: Name of its task.
            expires: As of ``Template``.
            said: Headers that are to be others than those of that message.

        Raises:
            NoTemplate: It went to no queue, or to several.
        """
        if len(self._messages) != 1 or self.published is None:
            queues = ", ".join(sorted(queue for queue, _ in self._messages)) or "none"
            raise NoTemplate(f"task {of} goes to several queues or none ({queues}): name one")
        queue, message = self._messages[0]
        headers, properties = message["headers"], message["properties"]
        headers.update(said)
        message["body"], properties["delivery_tag"] = MARK["body"], MARK["tag"]
        for name in ("argsrepr", "kwargsrepr", *(("expires",) if headers["expires"] else ())):
            headers[name] = MARK[name]
        if "expiration" in properties:
            properties["expiration"] = MARK["expiration"]
        headers[MARK["headers"]] = None
        written = self.published.options
        return Template(queue, message, written["serializer"], written["compression"], expires)

    def _note(self, body: Any, **options: Any) -> Any:
        self.published = Publish(body, dict(options))
        return self._publish(body, **{**options, "retry": False})

    def _put(self, queue: str, message: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        self._messages.append((queue, dict(message)))

    def _refuse(self, exchange: str, *args: Any, **kwargs: Any) -> None:
        raise NoTemplate(f"exchange {exchange} is a fanout, whose queues are no lists to write to")


@contextmanager
def caught(make_producer: Callable[..., Any]) -> Iterator[Catcher]:
    """Gives a producer whose messages are caught. make_producer: As of ``Catcher``."""
    with Connection("memory://") as connection:
        connection.transport.state = BrokerState()  # not that of all others in this process
        yield Catcher(connection, make_producer)
