"""Messages as real Celery and kombu build them, without Redis: kombu's in-memory transport keeps what ``_put`` gets."""

from base64 import b64encode
from datetime import datetime
from typing import Any

from celery import Celery
from kombu.transport import memory

from kombu_delayq.message.fields import Message

ETA = "2100-01-01T00:00:00.123456+00:00"
ETA_AT = datetime.fromisoformat(ETA)
ETA_MS = 4102444800123.456


def published(app: Celery, queue: str = "published") -> Message:
    """Takes the message that was published first out of the memory broker."""
    with app.connection_for_write() as connection:
        message: Message = connection.default_channel._get(queue)
        return message


def empty_broker() -> None:
    """Drops what other tests of the process have left in the memory broker: ``published`` would take it first."""
    memory.Channel.queues.clear()


def task_message(args: tuple[Any, ...] = (1, "x"), *, conf: dict[str, Any] | None = None, **options: Any) -> Message:
    """Publishes a task with ``apply_async``'s options, and returns the message that a transport would get.

    ``conf`` are settings of the app, ``task_protocol`` among them.
    """
    empty_broker()
    app = Celery("published", broker="memory://", set_as_current=False)
    app.conf.update(conf or {})
    app.send_task("proj.task", args, queue="published", **options)
    message = published(app)
    app.close()
    return message


def changed_message(content: bytes = b"[[1], {}, {}]", **changes: Any) -> Message:
    """Returns a message of protocol 2 that has only the fields that we read, with changes."""
    return {
        "body": b64encode(content).decode(),
        "headers": {"id": "t", "task": "proj.add", **changes.pop("headers", {})},
        "properties": {"body_encoding": "base64", **changes.pop("properties", {})},
        "content-type": "application/json",
        "content-encoding": "utf-8",
        **changes,
    }


def plain_message(body: Any = "hello", **properties: Any) -> Message:
    """Publishes with a plain kombu producer; keywords as in ``Producer.publish``."""
    empty_broker()
    app = Celery("published", broker="memory://", set_as_current=False)
    with app.connection_for_write() as connection:
        connection.default_channel.queue_declare("published")
        connection.Producer().publish(body, routing_key="published", **properties)
    return published(app)
