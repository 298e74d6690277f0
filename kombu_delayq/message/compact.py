"""Messages that take less room: bodies that stay text, and no headers that a worker assumes anyway."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kombu_delayq.message.bodies import JSON
from kombu_delayq.message.fields import Message, task_id_of

#: ``body_encoding`` of a body that is text. kombu leaves such a body as it is.
TEXT = "utf-8"
#: Headers of a task, and the value that ``task.request`` has for each that is missing. Left alone are ``eta``, by which
#: messages are delayed, and those whose default is another one: a task without ``ignore_result`` has that of its class.
#: Source: celery.app.task.Context, of Celery 5.5 to 5.7.
DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        **dict.fromkeys(("shadow", "expires", "group", "group_index", "parent_id", "stamped_headers")),
        **dict.fromkeys(("retries", "replaced_task_nesting"), 0),
    }
)
#: End of a body in JSON of a task without callbacks and without a workflow.
_NO_EMBED = ', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'


def without_defaults(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the headers of a task without those that have their default."""
    return {name: value for name, value in headers.items() if name not in DEFAULTS or not _is_default(name, value)}


def without_nulls(body: str) -> str:
    """Returns the body of a task, in JSON, with an empty object for callbacks and workflow if there are none."""
    return f"{body[: -len(_NO_EMBED)]}, {{}}]" if body.endswith(_NO_EMBED) else body


def omit_defaults(message: Message) -> None:
    """Makes a message lighter that kombu is about to encode, if it is a task of protocol 2.

    Args:
        message: The message. Its headers are replaced, not changed: the caller may look at them once more.
    """
    headers, body = message["headers"], message["body"]
    if task_id_of(headers) is None:
        return
    message["headers"] = without_defaults(headers)
    if isinstance(body, str) and message["content-type"] == JSON:
        message["body"] = without_nulls(body)


def keep_text(message: Message, body: object) -> None:
    """Makes a message lighter that kombu has just encoded, if its body is text.

    Args:
        message: The message.
        body: The body, before kombu encoded it.
    """
    if isinstance(body, str):
        message["body"], message["properties"]["body_encoding"] = body, TEXT


def _is_default(name: str, value: object) -> bool:
    default = DEFAULTS[name]
    return type(value) is type(default) and value == default  # 0, and not False
