"""Messages as Celery makes them, with gaps for the parts that differ from message to message.

Celery itself makes the message of each template, so its fields are those of the Celery version in use.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import uuid4

from celery import VERSION
from kombu.connection import Connection
from kombu.transport.virtual import BrokerState

from kombu_delayq.message import DELAY_SECONDS, JSON, TEXT, TIMESTAMP, Message, to_json, without_defaults
from kombu_delayq.options import Options

T = TypeVar("T")

#: Value of the header ``ignore_result`` that ``send_task`` writes if a call does not say.
RESULT_OF_UNKNOWN = None if VERSION >= (5, 7) else False


class Gaps(NamedTuple, Generic[T]):
    """The parts that differ from message to message: JSON texts, or columns of them.

    Attributes:
        body: The body, serialized, compressed and in base64.
        task_id: The task id.
        eta: The eta in ISO 8601, or ``null``.
        expires: The expiry in ISO 8601, or ``null``.
        expiration: Ms until the expiry, as a text, or ``null``.
        group_id: Id of the group, or ``null``.
        root_id: Id of the first task of the workflow, or ``null``.
        parent_id: Id of the task that called, or ``null``.
        argsrepr: Positional arguments as Celery shows them.
        kwargsrepr: Keyword arguments as Celery shows them.
        headers: Further headers, the fields of a JSON object with a comma before them; may be empty.
        delivery_tag: The delivery tag.
        timestamp: The property ``timestamp`` of a message without an eta, with a comma before it; else empty.
    """

    body: T
    task_id: T
    eta: T
    expires: T
    expiration: T
    group_id: T
    root_id: T
    parent_id: T
    argsrepr: T
    kwargsrepr: T
    headers: T
    delivery_tag: T
    timestamp: T


#: No app has the same text.
_MARK = f"delayq-gap-{uuid4()}-"
#: A gap in the text of a message. Further headers and the property ``timestamp`` go with the comma before them.
_SLOT = re.compile(f'(?:"{_MARK}(?!headers|timestamp)|, "{_MARK}(?=(?:headers|timestamp)": null))([a-z_]+)"(?:: null)?')


def placeholder(gap: str) -> str:
    """Returns what stands for the content of a gap while Celery makes the message."""
    return _MARK + gap


PLACEHOLDERS: Gaps[str] = Gaps(*map(placeholder, Gaps._fields))
#: Stands for an expiry while Celery makes the message: Celery calculates with it, so it cannot be a text.
EXPIRES = datetime(9999, 1, 1, tzinfo=UTC)


class NoTemplate(Exception):
    """The message goes to no list, or to several."""


class MessageForm:
    """The text of a message with gaps.

    Args:
        text: A message as JSON text, with ``%s`` for each gap.
        gaps: Names of the gaps in the order of their places; some have more than one place.
    """

    def __init__(self, text: str, gaps: Sequence[str]) -> None:
        self.text = text
        self.gaps = tuple(gaps)
        self._pick = attrgetter(*self.gaps)

    @classmethod
    def of(cls, message: Message) -> "MessageForm":
        """Cuts the gaps out of a message.

        Args:
            message: A message with a placeholder in each gap. That of ``headers`` is the name of a header, and that of
                ``timestamp`` the name of a property.
        """
        pieces = _SLOT.split(to_json(message))
        return cls("%s".join(piece.replace("%", "%%") for piece in pieces[::2]), pieces[1::2])

    def writer(self, fixed: Mapping[str, str], places: Mapping[str, tuple[int, str]]) -> Callable[[Sequence[str]], str]:
        """Returns what writes messages with the same texts in most gaps, in less time than ``fill``.

        Args:
            fixed: By the names of gaps, the JSON text that is always in it.
            places: By the names of the others, where in a row its text stands, and around what: ``%s``, or ``"%s"`` for
                texts that nothing has to be escaped in.

        Returns:
            A function of a row of texts.
        """
        first, *others = [piece.replace("%", "%%") for piece in self.pieces()]
        text, order = first, []
        for gap, piece in zip(self.gaps, others, strict=True):
            if gap in fixed:
                text += fixed[gap].replace("%", "%%")
            else:
                place, around = places[gap]
                text += around
                order.append(place)
            text += piece
        pick, write = itemgetter(*order), text.__mod__
        return lambda row: write(pick(row))

    def fill(self, gaps: Any) -> str:
        """Returns a message as JSON text. gaps: An object with a JSON text for each gap, such as ``Gaps``."""
        text: str = self.text % self._pick(gaps)
        return text

    def pieces(self) -> list[str]:
        """Returns the texts before, between and after the gaps, in the order of their places."""
        text: str = self.text % (("\0",) * len(self.gaps))
        return text.split("\0")


class Template:
    """A message with gaps.

    Args:
        queue: The list that the message goes to.
        message: A message as kombu's virtual transports make it, with placeholders in its gaps.
        serializer: Name of the serializer of the body.
        compression: Name of the compression of the body, or None.
        expires: Expiry of messages without their own, in a form that Celery takes; or None.
        compact: Whether headers that have their default are left out.

    Attributes:
        is_text: Whether the body in a message is text; else it is in base64.
        is_without_nulls: Whether its bodies are written with ``without_nulls``.
    """

    def __init__(
        self,
        queue: str,
        message: Message,
        serializer: str,
        compression: str | None,
        expires: Any,
        *,
        compact: bool = False,
    ) -> None:
        self.queue = queue
        self.serializer = serializer
        self.compression = compression
        self.expires = expires
        self.is_text: bool = message["properties"].get("body_encoding") == TEXT
        self.priority = int(message["properties"].get("priority") or 0)
        info = message["properties"]["delivery_info"]
        self.exchange: str = info["exchange"]
        self.routing_key: str = info["routing_key"]
        self.is_without_nulls = compact and self.is_text and message["content-type"] == JSON
        headers = message["headers"]
        if compact:
            headers = without_defaults(headers)
        self.form = MessageForm.of({**message, "headers": headers})
        #: For a message without a parent, where the header has a gap and is left out without one.
        self.orphan = self.form
        if compact and "parent_id" in self.form.gaps:
            orphan = {name: value for name, value in headers.items() if name != "parent_id"}
            self.orphan = MessageForm.of({**message, "headers": orphan})


class Publish(NamedTuple):
    """The arguments with which Celery called ``Producer.publish``.

    Attributes:
        body: Positional arguments, keyword arguments, and the embedded callbacks and errbacks, chain and chord.
        options: The keyword arguments of ``Producer.publish``.
    """

    body: Any
    options: dict[str, Any]


class Catcher:
    """Keeps the messages that Celery sends, instead of a broker.

    Args:
        connection: A connection of kombu to a broker in memory.
        make_producer: Makes a producer of a connection, as ``app.amqp.Producer`` does.
    """

    def __init__(self, connection: Any, make_producer: Callable[..., Any]) -> None:
        self.channel = connection.default_channel
        self.channel._put, self.channel._put_fanout = self._put, self._refuse
        self.producer = make_producer(connection, auto_declare=False)
        #: The latest call of ``publish``.
        self.published: Publish | None = None
        self._publish = self.producer.publish
        self.producer.publish = self._note
        self._messages: list[tuple[str, Message]] = []
        self._raw_body: object = None
        augment = self.channel._inplace_augment_message

        def note_body(message: Message, *address: str) -> None:
            self._raw_body = message["body"]  # before it is encoded
            augment(message, *address)

        self.channel._inplace_augment_message = note_body

    def template(
        self,
        task: str,
        expires: Any = None,
        headers: Mapping[str, Any] = MappingProxyType({}),
        *,
        broker: Options | None = None,
    ) -> Template:
        """Returns the only message that was sent, as a template.

        Args:
            task: Name of the task, for the error.
            expires: As for ``Template``.
            headers: Headers that replace those of the message.
            broker: The options of the transport; None for the defaults.

        Raises:
            NoTemplate: The message went to no queue, or to several.
        """
        if len(self._messages) != 1 or self.published is None:
            queues = ", ".join(sorted(queue for queue, _ in self._messages)) or "none"
            raise NoTemplate(f"task {task} goes to several queues or none ({queues}): name one")
        queue, message = self._messages[0]
        if DELAY_SECONDS in message["properties"]:
            raise NoTemplate(f"messages of task {task} have {DELAY_SECONDS}, by which the broker delays them")
        own, properties = message["headers"], message["properties"]
        own.update(headers)
        message["body"], properties["delivery_tag"] = PLACEHOLDERS.body, PLACEHOLDERS.delivery_tag
        own["argsrepr"], own["kwargsrepr"] = PLACEHOLDERS.argsrepr, PLACEHOLDERS.kwargsrepr
        if own["expires"]:  # without it, an expiration is one of the options, the same for all
            own["expires"], properties["expiration"] = PLACEHOLDERS.expires, PLACEHOLDERS.expiration
        own[PLACEHOLDERS.headers] = None
        if TIMESTAMP not in properties:  # otherwise the caller has set it
            properties[PLACEHOLDERS.timestamp] = None
        options = self.published.options
        broker = broker or Options()
        if broker.compact and isinstance(self._raw_body, str):
            properties["body_encoding"] = TEXT
        return Template(
            queue,
            message,
            options["serializer"],
            options["compression"],
            expires,
            compact=broker.compact,
        )

    def _note(self, body: Any, **options: Any) -> Any:
        self.published = Publish(body, dict(options))
        return self._publish(body, **{**options, "retry": False})

    def _put(self, queue: str, message: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        self._messages.append((queue, dict(message)))

    def _refuse(self, exchange: str, *args: Any, **kwargs: Any) -> None:
        raise NoTemplate(f"exchange {exchange} is a fanout, whose queues are not lists")


@contextmanager
def catching(make_producer: Callable[..., Any]) -> Iterator[Catcher]:
    """Provides a producer and keeps its messages. make_producer: As for ``Catcher``."""
    with Connection("memory://") as connection:
        # Not what the memory transports of a process share: its state, and its queues, which would stay there for good.
        connection.transport.state, connection.default_channel.queues = BrokerState(), {}
        yield Catcher(connection, make_producer)
