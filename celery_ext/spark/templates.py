"""Messages as Celery makes them, with slots for what differs from row to row.

Each template is a message that Celery itself has made, so that its fields are Celery's, of whatever version.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from celery import signals
from celery.exceptions import QueueNotFound
from kombu.connection import Connection
from kombu.transport.virtual import BrokerState
from kombu.utils.json import dumps

from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.errors import BadRow

#: What differs from row to row, in the order in which ``Template.fill`` takes them. Each is JSON text.
SLOTS = (
    *("body", "id", "eta", "expires", "expiration", "group", "root_id", "parent_id"),
    *("argsrepr", "kwargsrepr", "headers", "tag"),
)
#: What stands for a slot.
_MARK = {name: f"delayq-slot-{name}" for name in SLOTS}
#: What stands for an expiry while Celery makes the message: it counts with it.
_EXPIRES = datetime(9999, 1, 1, tzinfo=UTC)
#: How the marks look in the message. The header that stands for further ones goes with the comma before it.
_WRITTEN = {f'"{mark}"': name for name, mark in _MARK.items()} | {f', "{_MARK["headers"]}": null': "headers"}
_WRITTEN_MARKS = re.compile(f"({'|'.join(map(re.escape, _WRITTEN))})")


class Shape(NamedTuple):
    """What messages have in common that share a template.

    Attributes:
        task: Name of the task.
        queue: Given queue, or None.
        priority: Given priority, or None.
        time_limit: In s, or None.
        soft_time_limit: In s, or None.
        ignore_result: Or None.
        expires: Whether a row has its own expiry.
    """

    task: str
    queue: str | None
    priority: int | None
    time_limit: float | None
    soft_time_limit: float | None
    ignore_result: bool | None
    expires: bool


class Template:
    """A message with slots.

    Args:
        queue: The list that it goes to.
        message: As kombu's virtual transports make it, with marks in its slots.
        serializer: How its body is written.
        compression: How its body is compressed, or None.
        expires_s: Expiry of its task that counts for rows without their own, in s; or None.
    """

    def __init__(
        self, queue: str, message: dict[str, Any], serializer: str, compression: str | None, expires_s: Any
    ) -> None:
        self.queue = queue
        self.serializer = serializer
        self.compression = compression
        self.expires_s = expires_s
        self.priority = int(message["properties"].get("priority") or 0)
        info = message["properties"]["delivery_info"]
        #: Exchange and routing key.
        self.way: tuple[str, str] = info["exchange"], info["routing_key"]
        text, *rest = _WRITTEN_MARKS.split(dumps(message))
        self._format = "%s".join(piece.replace("%", "%%") for piece in (text, *rest[1::2]))
        self._order = [SLOTS.index(_WRITTEN[mark]) for mark in rest[::2]]

    def fill(self, slots: Sequence[str]) -> str:
        """Returns the message of a row. slots: JSON text for each of ``SLOTS``; ``headers`` begins with a comma."""
        return self._format % tuple(slots[at] for at in self._order)

    def filled(self, columns: Sequence[Iterable[str]]) -> Iterator[str]:
        """Yields the messages of many rows. columns: for each of ``SLOTS``, as of ``fill``, one a row."""
        return map(self._format.__mod__, zip(*(columns[at] for at in self._order), strict=False))


class Templates:
    """Makes templates, each once.

    Args:
        settings: Of the app.
    """

    def __init__(self, settings: AppSettings) -> None:
        self._settings = settings
        self._app = settings.make_app()
        self._made: dict[Shape, Template] = {}

    def of(self, shape: Shape) -> Template:
        """Returns the template of a shape.

        Raises:
            BadRow: Such a message goes to no queue, or to several.
        """
        template = self._made.get(shape)
        if template is None:
            template = self._made[shape] = self._make(shape)
        return template

    def _make(self, shape: Shape) -> Template:
        options = self._options(shape)
        expires = options.pop("expires", None)
        serializer = options.get("serializer") or self._app.conf.task_serializer
        compression = options.get("compression") or self._app.conf.task_compression
        queue, message = self._publish(shape, options, shape.expires or expires is not None)
        return Template(queue, message, serializer, compression, expires)

    def _options(self, shape: Shape) -> dict[str, Any]:
        """Returns the options of a call, those of the task beneath those of the row.

        Source: celery.app.base.Celery.send_task
        """
        given = {
            name: value
            for name, value in shape._asdict().items()
            if name not in ("task", "expires") and value is not None
        }
        options = {**self._settings.tasks.get(shape.task, {}), **given}
        try:
            routed: dict[str, Any] = self._app.amqp.router.route(options, shape.task, (), {}, None)
        except QueueNotFound as error:
            raise BadRow(f"task {shape.task} has no queue: {error.args[0]}") from None
        return routed

    def _publish(self, shape: Shape, options: dict[str, Any], expires: bool) -> tuple[str, dict[str, Any]]:
        """Lets Celery send a message, and catches it on the way."""
        slots = {name: _MARK[name] for name in ("eta", "root_id", "parent_id")}
        with Connection("memory://") as connection:
            connection.transport.state = BrokerState()  # not that of all others in this process
            channel = connection.default_channel
            for queue in self._app.amqp.queues.values():
                queue.bind(channel).declare()  # as workers do: which queues get a message depends on all of them
            sent = _Sent(channel)
            with _unheard():
                self._app.send_task(
                    shape.task,
                    task_id=_MARK["id"],
                    group_id=_MARK["group"],
                    expires=_EXPIRES if expires else None,
                    producer=self._app.amqp.Producer(connection, auto_declare=False),
                    add_to_parent=False,
                    **slots,
                    **options,
                )
        return sent.only(shape.task)


class _Sent:
    """The messages that a channel would send."""

    def __init__(self, channel: Any) -> None:
        self._messages: list[tuple[str, dict[str, Any]]] = []
        channel._put = self._put
        channel._put_fanout = self._refuse

    def only(self, task: str) -> tuple[str, dict[str, Any]]:
        if len(self._messages) != 1:
            queues = ", ".join(sorted(queue for queue, _ in self._messages)) or "none"
            raise BadRow(f"task {task} goes to several queues or none ({queues}): name one")
        queue, message = self._messages[0]
        headers, properties = message["headers"], message["properties"]
        message["body"], properties["delivery_tag"] = _MARK["body"], _MARK["tag"]
        for name in ("argsrepr", "kwargsrepr", *(("expires",) if headers["expires"] else ())):
            headers[name] = _MARK[name]
        if "expiration" in properties:
            properties["expiration"] = _MARK["expiration"]
        headers[_MARK["headers"]] = None
        return queue, message

    def _put(self, queue: str, message: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        self._messages.append((queue, dict(message)))

    def _refuse(self, exchange: str, *args: Any, **kwargs: Any) -> None:
        raise BadRow(f"exchange {exchange} is a fanout, whose queues are no lists to write to")


@contextmanager
def _unheard() -> Iterator[None]:
    """Keeps messages that are never sent from what the app has connected to Celery's signals."""
    heard = [each.receivers for each in (signals.before_task_publish, signals.after_task_publish, signals.task_sent)]
    kept = [list(receivers) for receivers in heard]
    for receivers in heard:
        receivers.clear()
    try:
        yield
    finally:
        for receivers, before in zip(heard, kept, strict=True):
            receivers[:] = before
