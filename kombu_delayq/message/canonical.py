"""Messages as the store keeps them: JSON text with the same delivery tag every time the same task message is sent."""

from collections.abc import Callable
from hashlib import sha1

from kombu_delayq.message.fields import Message, to_json

#: Stands for the delivery tag while a message is written; as long as a UUID.
_NO_TAG = "delayq-delivery-tag-not-yet-known-00"

#: What stands before and behind the texts that ``unsigned`` leaves out.
_ORIGIN, _AFTER_ORIGIN = b'"origin": "', b'", "ignore_result": '
_CORRELATION_ID, _REPLY_TO = b'"properties": {"correlation_id": "', b'", "reply_to": "'

#: Maps a hex digit to a valid variant digit of a UUID of version 4.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


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
