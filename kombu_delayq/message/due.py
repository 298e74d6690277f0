"""What a message says of itself: when it is due, its id and its priority. Knows no Redis."""

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from typing import Any, NamedTuple, cast

from dateutil.parser import isoparse
from kombu.utils.json import JSONEncoder

from kombu_delayq.errors import InvalidDelay, UnreadableMessage
from kombu_delayq.message import bodies

#: A message as kombu's virtual transports build it: body, headers, properties, content-type, content-encoding.
Message = dict[str, Any]

#: Message property of a task whose call brought a delay chain, and of each step of any chain: its text.
CHAIN = "delay_chain"
#: Message property of a step of a delay chain: the same in all its steps, and in no other message.
CHAIN_ID = "delay_chain_id"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: Longest delay in s that is taken for one: the span of years that a datetime can name.
_MAX_DELAY_S = 9999 * 366 * 86400
#: Stands for the delivery tag while a message is sealed; as long as a UUID.
_NO_TAG = "delayq-delivery-tag-not-yet-known-00"
#: What ``kombu.utils.json.dumps`` does, without a new encoder for each message.
_dumps = JSONEncoder().encode


class Due(NamedTuple):
    """When a message is to be delivered.

    Attributes:
        ms: Time in ms since the epoch, or if relative, in ms from its arrival at Redis.
        relative: Whether ``ms`` counts from arrival.
        task_id: The Celery task id, if it is a task.
    """

    ms: float
    relative: bool
    task_id: str | None


def due_of(message: Message) -> Due | None:
    """Tells when a message that is being published wants to be delivered, or None for at once.

    The eta of a Celery task counts; else, for plain kombu producers, the property ``DelaySeconds``,
    unless the message is on its way back to its queue and has had its delay.

    Raises:
        InvalidDelay: ``DelaySeconds`` is not a finite number.

    Source: ``DelaySeconds`` is the message property of kombu's SQS and PGMQ transports.
    """
    due = eta_of(message)
    if due is not None:
        return due
    delay = message["properties"].get("DelaySeconds")
    if delay is None or message.get("redelivered"):
        return None
    delay_ms = _seconds(delay) * 1000
    return Due(delay_ms, True, _task_id(message["headers"])) if delay_ms > 0 else None


def eta_of(message: Message) -> Due | None:
    """Tells the eta of a Celery task message of either protocol, or None if there is none to be read.

    An eta that no worker could read either is none: the worker that gets it says so.
    """
    headers = message.get("headers") or {}
    if "eta" in headers:
        eta, task_id = headers["eta"], _task_id(headers)
    else:
        eta, task_id = _of_protocol_1(message, headers)
    if not eta or not isinstance(eta, str):
        return None
    try:
        moment = _parse(eta)
    except (ValueError, OverflowError):
        return None
    return Due((moment - _EPOCH) / _MICROSECOND / 1000, False, task_id)


def seal(message: Message, task_id: str | None) -> tuple[str, str]:
    """Serializes a message for the store.

    kombu gives each attempt to publish a new delivery tag. A task's tag is made from its content here, so that
    a second attempt after a lost reply has the same bytes, by which the store knows it.

    Returns:
        The id under which the store keeps the message, and the message as JSON text.
    """
    properties = message["properties"]
    if task_id is None:
        return str(properties["delivery_tag"]), _dumps(message)

    def written(tag: str) -> str:
        properties["delivery_tag"] = tag
        text: str = _dumps(message)
        return text

    tag, text = _sealed(written)
    properties["delivery_tag"] = tag
    return task_id, text


def seal_text(written: Callable[[str], str]) -> str:
    """Does what ``seal`` does for a task. ``written`` gives its message with a delivery tag, as JSON text."""
    return _sealed(written)[1]


def with_eta(body: bytes, due_ms: float) -> bytes:
    """Returns a message in which the eta, if it has one, is another.

    A consumer goes by the eta that a message itself has, so one that is delivered earlier than that would be put back.

    Args:
        body: A message as it is pushed to its queue.
        due_ms: The new eta, ms since the epoch.

    Raises:
        UnreadableMessage: The eta cannot be replaced.
    """
    eta = moment_of(due_ms).isoformat()
    try:
        message = json.loads(body)
        headers = message.get("headers") or {}
        if headers.get("eta"):
            headers["eta"] = eta
        elif "eta" not in headers and eta_of(message) is not None:
            message["body"] = bodies.write(message, {**cast(Message, _content(message)), "eta": eta})
        elif _hides_an_eta(message):
            raise bodies.UnreadableBody("it has one in a body that cannot be read")
        else:
            return body
        return json.dumps(message).encode()
    except Exception as error:  # any format may fail in its own way
        # What formats say of a damaged body may have parts of it.
        reason = str(error) if isinstance(error, bodies.UnreadableBody) else type(error).__name__
        raise UnreadableMessage(f"the eta of a message cannot be replaced: {reason}") from None


def moment_of(due_ms: float) -> datetime:
    """Returns a due time, ms since the epoch, in UTC; the nearest that a datetime can name where it cannot name it."""
    try:
        return _EPOCH + timedelta(milliseconds=due_ms)
    except OverflowError:
        return (datetime.min if due_ms < 0 else datetime.max).replace(tzinfo=UTC)


def tag_of(digits: str) -> str:
    """Returns a delivery tag as kombu writes them, a UUID, of the first 32 hex digits."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _sealed(written: Callable[[str], str]) -> tuple[str, str]:
    text = written(_NO_TAG)
    tag = tag_of(sha1(text.encode(), usedforsecurity=False).hexdigest())
    # Mostly it stands there once. Where something else has it too, such as an argument, that must keep it.
    return tag, text.replace(_NO_TAG, tag) if text.count(_NO_TAG) == 1 else written(tag)


def _task_id(of: Mapping[str, Any]) -> str | None:
    # In the headers of what is no task, the id may be anything, and two messages may have the same.
    task_id = of.get("id") if "task" in of else None
    return task_id if isinstance(task_id, str) else None


def _parse(eta: str) -> datetime:
    try:
        moment = datetime.fromisoformat(eta)
    except ValueError:
        moment = isoparse(eta)  # what the worker uses; knows more forms, and is slower
    # A worker takes an eta without a zone for UTC. Source: celery.utils.time.maybe_make_aware
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _seconds(delay: object) -> float:
    try:
        seconds = float(delay)  # type: ignore[arg-type]  # whatever it is, the except says so
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not -_MAX_DELAY_S <= seconds <= _MAX_DELAY_S:
        raise InvalidDelay(f"DelaySeconds={delay!r} is not a number of seconds up to {_MAX_DELAY_S}")
    return seconds


def _of_protocol_1(message: Message, headers: Mapping[str, Any]) -> tuple[object, str | None]:
    """Reads eta and id from the body of a protocol 1 task. Celery sets correlation_id on every one."""
    properties = message.get("properties") or {}
    if not properties.get("correlation_id") or "task" in headers:
        return None, None
    task = _content(message)
    # Events are dicts with an eta too; only a task has both its name and its arguments.
    return (
        (task.get("eta"), _task_id(task))
        if isinstance(task, dict) and {"task", "args"} <= task.keys()
        else (None, None)
    )


def _content(message: Message) -> object:
    """Returns what the body of a protocol 1 task says, or None where it is in no format that runs nothing."""
    try:
        raw = bodies.opened(message)
        return bodies.read(raw, message.get("content-type")) if b"eta" in raw and b"task" in raw else None
    except Exception:
        # Any format may fail in its own way; the consumer meets the same body and reports it.
        return None


def _hides_an_eta(message: Message) -> bool:
    """Tells whether a waiting message without an eta that can be read may have one all the same, in its body."""
    properties = message.get("properties") or {}
    in_body = properties.get("correlation_id") and "task" not in (message.get("headers") or {})
    return bool(in_body) and not {"DelaySeconds", CHAIN_ID} & properties.keys()  # these wait without one
