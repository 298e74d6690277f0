"""What a message becomes on its way out: compact, stamped, and in the form in which the store keeps it.

That form is JSON text, with the same delivery tag every time the same task message is sent.
"""

from collections.abc import Callable, Mapping
from hashlib import sha1
from time import time
from types import MappingProxyType
from typing import Any

from kombu_delayq.message.bodies import JSON
from kombu_delayq.message.due import Due
from kombu_delayq.message.fields import TIMESTAMP, Message, task_id_of, to_json

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
#: Stands for the delivery tag while a message is written; as long as a UUID.
_NO_TAG = "delayq-delivery-tag-not-yet-known-00"

#: What stands before and behind the texts that ``unsigned`` leaves out.
_ORIGIN, _AFTER_ORIGIN = b'"origin": "', b'", "ignore_result": '
_CORRELATION_ID, _REPLY_TO = b'"properties": {"correlation_id": "', b'", "reply_to": "'

#: Maps a hex digit to a valid variant digit of a UUID of version 4.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def without_defaults(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the headers of a task without those that have their default."""
    return {name: value for name, value in headers.items() if name not in DEFAULTS or not _is_default(name, value)}


def without_nulls(body: str) -> str:
    """Returns the body of a task, in JSON, with an empty object for callbacks and workflow if there are none."""
    return f"{body[: -len(_NO_EMBED)]}, {{}}]" if body.endswith(_NO_EMBED) else body


def omit_defaults(message: Message) -> None:
    """Makes a task of protocol 2 compact that kombu is about to encode.

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
    """Makes a message compact that kombu has just encoded, if its body is text.

    Args:
        message: The message.
        body: The body, before kombu encoded it.
    """
    if isinstance(body, str):
        message["body"], message["properties"]["body_encoding"] = body, TEXT


def _is_default(name: str, value: object) -> bool:
    default = DEFAULTS[name]
    return type(value) is type(default) and value == default  # 0, and not False


def stamp() -> dict[str, int]:
    """Returns the property of a message that goes to its queue now."""
    return {TIMESTAMP: int(time())}


def stamp_published(message: Message, due: Due | None) -> None:
    """Gives a message that is being published the property, unless its caller or its eta says since when it is ready.

    Args:
        message: The message.
        due: When it is due, of a message that waits; None for now. A task that waits has an eta, or its messages have
            to stay the same, so that a repeated one is recognized.
    """
    if due is None:
        message["properties"].setdefault(TIMESTAMP, int(time()))
    elif due.relative and due.task_id is None:
        message["properties"].setdefault(TIMESTAMP, int(time() + due.ms / 1000))


def stamp_text() -> str:
    """Returns the property of a message that goes to its queue now, as JSON with a comma before it."""
    return f', "{TIMESTAMP}": {int(time())}'


def canonical(message: Message, task_id: str | None) -> tuple[str, str]:
    """Serializes a message for the store.

    kombu gives each attempt to publish a new delivery tag. ``canonical`` makes the tag of a task from the content of
    its message, so that the store recognizes a second attempt after a lost reply, from whichever thread or process.

    Args:
        message: The message. Its delivery tag is replaced by the one that ``canonical`` makes.
        task_id: Id of the task; None for a message that is no task, which keeps its delivery tag.

    Returns:
        The id under which the store keeps the message, and the message as JSON text.
    """
    properties = message["properties"]
    if task_id is None:
        return str(properties["delivery_tag"]), to_json(message)

    def write(tag: str) -> str:
        properties["delivery_tag"] = tag
        return to_json(message)

    tag, text = with_tag(write)
    properties["delivery_tag"] = tag
    return task_id, text


def with_tag(write: Callable[[str], str]) -> tuple[str, str]:
    """Returns the delivery tag of a task's message in its canonical form, and the message as JSON text.

    Args:
        write: Returns the message as JSON text with a given delivery tag.
    """
    text = write(_NO_TAG)
    tag = uuid_of(sha1(unsigned(text.encode()), usedforsecurity=False).hexdigest())
    # The text that stands for the tag may also be part of an argument, which keeps it.
    return tag, text.replace(_NO_TAG, tag) if text.count(_NO_TAG) == 1 else write(tag)


def unsigned(raw: bytes) -> bytes:
    """Returns a message without ``origin`` and ``reply_to``, as far as it has them where Celery writes them.

    Celery fills in the name of the process and an id of the thread, so that they differ where a call is made again. Two
    messages of one id of which the rest is equal are the same message.
    """
    end = raw.find(_AFTER_ORIGIN)
    start = raw.rfind(b'"', 0, max(end, 0)) + 1
    if raw.endswith(_ORIGIN, 0, start):
        raw = raw[:start] + raw[end:]
    at = raw.rfind(_CORRELATION_ID)
    end = raw.find(b'"', at + len(_CORRELATION_ID))
    if at >= 0 and raw.startswith(_REPLY_TO, end):
        start = end + len(_REPLY_TO)
        raw = raw[:start] + raw[max(raw.find(b'"', start), start) :]
    return raw


def uuid_of(digits: str) -> str:
    """Returns the first 32 of some hex digits in the form of a UUID, the form of kombu's delivery tags."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def version_4(digits: str) -> str:
    """Returns 32 random hex digits with the version and variant digits of ``uuid4``."""
    return f"{digits[:12]}4{digits[13:16]}{_VARIANT[digits[16]]}{digits[17:]}"
