"""The fields of a message, as kombu's virtual transports build it.

A message is a dict with ``body``, ``headers``, ``properties``, ``content-type`` and ``content-encoding``. In Redis it
is this dict as JSON. Any program may have written it, so any field may be missing or of another type.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any
from uuid import UUID

from kombu.utils.json import JSONEncoder, loads
from msgspec import MsgspecError
from msgspec.json import Decoder as JSONDecoder

Message = dict[str, Any]

#: Message property of every step of a delay chain, and of a task that is called with one: the chain as text.
CHAIN = "delay_chain"
#: Message property of every step of a delay chain: the same value in all steps of the chain, and in no other message.
CHAIN_ID = "delay_chain_id"
#: Message header: what says which place a message takes while it is in hand and its task runs. Scripts look for it.
PLACE = "delayq_limit"
#: Message property: how often the message was in the hands of a consumer that died.
DELIVERY_COUNT = "x-delivery-count"
#: Message property of AMQP, in whole s since the epoch: when a message went to its queue. A message that waits for its
#: eta needs none: it is ready at its eta, and is the same each time it is published.
TIMESTAMP = "timestamp"

#: The beginning of a task's message, protocol 2, up to the name of the task. Its texts have no escapes, so no quote is
#: within one.
_BEGINNING = re.compile(
    rb'\{"body": ?"[^"\\]*", ?"content-encoding": ?"[^"\\]*", ?"content-type": ?"[^"\\]*", ?'
    rb'"headers": ?\{"lang": ?"[^"\\]*", ?"task": ?"([ !#-\[\]-~]*)"'
)

#: Writes a text as ``to_json`` does, in less time.
text_to_json: Callable[[str], str] = encode_basestring_ascii
_encoder = JSONEncoder()
#: Makes what an encoder of the json module makes anew for each value; None on a Python that does not have it.
_make: Any = vars(json.encoder).get("c_make_encoder")
#: The same made once, without a list of the objects that a value is within.
_encode: Callable[[Any, int], Iterable[str]] | None = _make and _make(
    None, _encoder.default, text_to_json, None, _encoder.key_separator, _encoder.item_separator, False, False, True
)

_decode: Callable[[str | bytes], Any] = JSONDecoder().decode


def to_json(value: Any) -> str:
    """Writes any value as ``kombu.utils.json.dumps`` does, in half the time.

    Raises:
        TypeError, ValueError: As of ``json.dumps``.
    """
    if _encode is not None and not isinstance(value, str):
        try:
            return "".join(_encode(value, 0))
        except RecursionError:  # a value within itself, which the json module names
            pass
    text: str = _encoder.encode(value)
    return text


def from_json(data: Any) -> Any:
    r"""Reads JSON as ``kombu.utils.json.loads`` does, in a quarter of the time.

    kombu looks at each object, because one with the name ``__type__`` may stand for a date, a UUID or the like. Where
    that name is not in the text, also not with escapes (``\u005f``), no object needs a look. msgspec refuses more than
    the standard library does, such as ``NaN``; all else it reads to the same values.

    Args:
        data: Text, or its bytes in UTF-8.

    Raises:
        ValueError: It is no JSON.
    """
    if isinstance(data, bytes):
        # A search from the end takes a third of the time.
        has_marks = data.rfind(b"__type__") >= 0 or data.rfind(b"\\u00") >= 0
    else:
        has_marks = not isinstance(data, str) or "__type__" in data or "\\u00" in data
    if has_marks:
        return loads(data)
    try:
        return _decode(data)
    except (MsgspecError, ValueError, RecursionError):
        return loads(data)


def read(raw: bytes | None) -> Message:
    """Reads a message as it is in Redis.

    Bytes that are no UTF-8 become single surrogates: kombu's consumers, too, read messages with such bytes.

    Returns:
        The message; empty for None, and for text that is no JSON object.
    """
    try:
        found = json.loads(_text(raw or b""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def task_at_start(raw: bytes | None) -> str | None:
    """Returns the name of the task in a message as Celery writes it, in a fraction of the time of ``read``.

    Only a message that begins as those of Celery do, with nothing escaped, has one. None means that ``read`` has to
    tell. A message that is damaged further on has one, too.
    """
    found = _BEGINNING.match(raw or b"")
    return None if found is None else found[1].decode("ascii")


def headers_of(message: Message) -> dict[str, Any]:
    """Returns the headers of a message; empty where it has none, or where they are no dict."""
    return _mapping(message.get("headers"))


def properties_of(message: Message) -> dict[str, Any]:
    """Returns the properties of a message; empty where it has none, or where they are no dict."""
    return _mapping(message.get("properties"))


def info_of(message: Message) -> dict[str, Any]:
    """Returns the property ``delivery_info`` of a message, which has its address; empty where there is none."""
    return _mapping(properties_of(message).get("delivery_info"))


def priority_of(message: Message) -> int:
    """Returns the priority of a message, 0 to 9.

    Source: kombu.transport.virtual.Channel._get_message_priority.
    """
    try:
        return max(min(int(properties_of(message)["priority"]), 9), 0)
    except (LookupError, TypeError, ValueError, OverflowError):
        return 0


def deliveries_of(message: Message) -> int:
    """Returns how often a message was in the hands of a consumer that died."""
    count = properties_of(message).get(DELIVERY_COUNT)
    return max(count, 0) if isinstance(count, int) else 0


def task_id_of(head: Mapping[str, Any]) -> str | None:
    """Returns the id of a task, or None.

    Args:
        head: The headers of a message, or the body of a task of protocol 1. The ``id`` of a message that is no task
            may be anything, and two messages may have the same one; it does not count.
    """
    task_id = head.get("id") if "task" in head else None
    if isinstance(task_id, UUID):  # as Celery lets a caller give it
        return str(task_id)
    return task_id if isinstance(task_id, str) else None


def id_of(message: Message) -> str:
    """Returns the task id of a message of kombu, of either protocol, or what else all copies of it have in common.

    Celery puts the id of a task into ``correlation_id``. Without one, the message has its delivery tag alone, which is
    another one for each attempt to publish.
    """
    properties = message["properties"]
    return str(task_id_of(message["headers"]) or properties.get("correlation_id") or properties["delivery_tag"])


def fault_of(raw: bytes) -> str | None:
    """Returns why no consumer of kombu can read a message as it is in Redis, or None if one can.

    Source: kombu.transport.virtual.Message, and how its channel restores messages.
    """
    try:
        message = json.loads(_text(raw))
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"
    if not isinstance(message, dict):
        return "it is no JSON object"
    properties = message.get("properties")
    if "body" not in message or not isinstance(properties, dict) or not isinstance(message.get("headers"), dict):
        return "it is no message of kombu, which has a body, headers and properties"
    if not isinstance(properties.get("delivery_tag"), str) or not isinstance(properties.get("delivery_info"), dict):
        return "it is no message of kombu, whose properties have a delivery_tag and delivery_info"
    return None


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _mapping(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
