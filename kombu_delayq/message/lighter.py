"""Messages that take less room: bodies that stay text, long texts that show arguments cut, and no defaults."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kombu_delayq.message.bodies import JSON
from kombu_delayq.message.fields import Message, task_id_of

#: ``body_encoding`` of a body that is text. kombu leaves such a body as it is.
TEXT = "utf-8"
#: End of a text that was cut.
CUT = "...cut"
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


def cut(text: str, most: int | None) -> str:
    """Returns a text of ``argsrepr`` or ``kwargsrepr`` with at most so many characters, and ``CUT`` if there are more.

    A text that was cut already stays as it is. most: None for no limit.
    """
    return text if most is None or len(text) <= most else f"{text[:most]}{CUT}"


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


def lighten(message: Message, body: object, most: int | None, *, text_bodies: bool) -> None:
    """Makes a message lighter that kombu has just encoded.

    Args:
        message: The message. Its headers are replaced, not changed: the caller may look at them once more.
        body: The body, before kombu encoded it.
        most: Most characters of ``argsrepr`` and ``kwargsrepr``; None for no limit.
        text_bodies: Whether a body that is text stays text.
    """
    headers = message["headers"]
    shown = {name: headers[name] for name in ("argsrepr", "kwargsrepr") if isinstance(headers.get(name), str)}
    if most is not None and any(len(text) > most for text in shown.values()):
        message["headers"] = headers | {name: cut(text, most) for name, text in shown.items()}
    if text_bodies and isinstance(body, str):
        message["body"], message["properties"]["body_encoding"] = body, TEXT


def _is_default(name: str, value: object) -> bool:
    default = DEFAULTS[name]
    return type(value) is type(default) and value == default  # 0, and not False
