"""When a message is due, by the eta of a task or the property ``DelaySeconds``, or since when; moments as numbers."""

import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dateutil.parser import isoparse
from kombu.log import get_logger

from kombu_delayq.errors import InvalidDelay, quoted
from kombu_delayq.message import bodies
from kombu_delayq.message.fields import CHAIN_ID, TIMESTAMP, Message, headers_of, properties_of, task_id_of

logger = get_logger(__name__)

#: Due times count from here.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def in_utc(moment: datetime) -> datetime:
    """Returns a moment with a zone. A moment without a zone is in UTC: workers read an eta in this way.

    Source: celery.utils.time.maybe_make_aware
    """
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def us_of(moment: datetime) -> int:
    """Returns a moment in whole µs since the epoch; without a zone it is in UTC."""
    return (in_utc(moment) - EPOCH) // _MICROSECOND


def ms_of(moment: datetime) -> float:
    """Returns a moment in ms since the epoch; without a zone it is in UTC.

    Every due time is made here, so that equal moments give the same number.
    """
    return us_of(moment) / 1000


def moment_of(due_ms: float) -> datetime:
    """Returns a due time, ms since the epoch, in UTC; the first or last datetime if the time is beyond it."""
    try:
        return EPOCH + timedelta(milliseconds=due_ms)
    except OverflowError:
        return (datetime.min if due_ms < 0 else datetime.max).replace(tzinfo=UTC)


def iso_of(due_ms: float) -> str | None:
    """Returns a due time, ms since the epoch, in ISO 8601 and UTC; None if it is beyond the first or last datetime."""
    try:
        return (EPOCH + timedelta(milliseconds=due_ms)).isoformat()
    except (OverflowError, ValueError):
        return None


def ms_text(us: int) -> str:
    """Returns a time in µs as text in ms."""
    return f"{us // 1000}.{us % 1000:03}"


#: Message property of kombu's SQS and PGMQ transports: a delay in s.
DELAY_SECONDS = "DelaySeconds"
#: Longest delay in s that is accepted: the span of years that a datetime can name.
_MAX_DELAY_S = 9999 * 366 * 86400


class Due(NamedTuple):
    """When a message is to be delivered.

    Attributes:
        ms: Due time in ms since the epoch, or if relative, in ms from the message's arrival at Redis.
        relative: Whether ``ms`` counts from the arrival.
        task_id: The Celery task id, if the message is a task.
    """

    ms: float
    relative: bool
    task_id: str | None


def due_of(message: Message) -> Due | None:
    """Returns when a message that is being published is to be delivered, or None for at once.

    A Celery task is due at its eta. A plain kombu message has the property ``DelaySeconds`` instead. That counts only
    once: a message on its way back to its queue has had its delay.

    Raises:
        InvalidDelay: ``DelaySeconds`` is not a finite number.
    """
    due = eta_of(message)
    if due is not None:
        return due
    delay = message["properties"].get(DELAY_SECONDS)
    if delay is None or message.get("redelivered"):
        return None
    delay_ms = _seconds(delay) * 1000
    return Due(delay_ms, True, task_id_of(message["headers"])) if delay_ms > 0 else None


def eta_of(message: Message, accept: Collection[str] | None = None) -> Due | None:
    """Returns the eta of a Celery task message of either protocol, or None if it has no readable eta.

    Args:
        message: The message.
        accept: Content types of the bodies that are read for an eta of protocol 1; None for all that can be.

    A worker cannot read an unreadable eta either: the worker that gets the message reports it.
    """
    headers = headers_of(message)
    if "eta" in headers:
        eta, task_id = headers["eta"], task_id_of(headers)
    elif accept is None or message.get("content-type") in accept:
        eta, task_id = _of_protocol_1(message)
    else:
        return None
    if not eta or not isinstance(eta, str):
        return None
    try:
        return Due(ms_of(_parse(eta)), False, task_id)
    except (ValueError, OverflowError):
        return None


def ready_since_s(message: Message) -> float | None:
    """Returns since when a message could have been consumed, s since the epoch; None where nothing says it.

    That is its ``timestamp``, or its eta where that is later: of a message from another publisher, or one that waited.
    An eta in a body, of a task of protocol 1, does not count: bodies are not read for this.
    """
    timestamp, eta = properties_of(message).get(TIMESTAMP), headers_of(message).get("eta", "")
    if eta is None and type(timestamp) is int:  # as most tasks are; the rest takes several times as long
        return timestamp
    return later(timestamp, eta_of(message, accept=()))


def later(timestamp: Any, eta: Due | None) -> float | None:
    """Returns the later one of a property ``timestamp`` and an eta, s since the epoch; None where there is neither."""
    since = timestamp if isinstance(timestamp, int | float) and not isinstance(timestamp, bool) else None
    due_s = None if eta is None else eta.ms / 1000
    return due_s if since is None else since if due_s is None else max(since, due_s)


def is_task_of_protocol_1(message: Message) -> bool:
    """Returns whether a message may be a task of protocol 1. Celery sets ``correlation_id`` on every task."""
    return bool(properties_of(message).get("correlation_id")) and "task" not in headers_of(message)


def content_of_protocol_1(message: Message) -> Any:
    """Returns the content of the body of a task of protocol 1.

    Returns:
        The content; None for a body without an eta, for a damaged body, and for a format that might run code when it
        is read.
    """
    try:
        raw = bodies.unpacked(message)
        return bodies.loads(raw, message.get("content-type")) if b"eta" in raw and b"task" in raw else None
    except Exception as error:  # each format fails in its own way; the consumer meets the same body and reports it
        logger.debug("no eta can be read in a body: %s", type(error).__name__)
        return None


def has_hidden_eta(message: Message) -> bool:
    """Returns whether a waiting message may have an eta in a body that cannot be read."""
    # Plain messages and steps of a delay chain wait without an eta.
    return is_task_of_protocol_1(message) and not {DELAY_SECONDS, CHAIN_ID} & properties_of(message).keys()


def _of_protocol_1(message: Message) -> tuple[object, str | None]:
    """Returns eta and id in the body of a task of protocol 1."""
    task: Mapping[str, Any] | None = content_of_protocol_1(message) if is_task_of_protocol_1(message) else None
    # Events are dicts with an eta too; only a task has both its name and its arguments.
    if isinstance(task, dict) and {"task", "args"} <= task.keys():
        return task.get("eta"), task_id_of(task)
    return None, None


def _parse(eta: str) -> datetime:
    try:
        return datetime.fromisoformat(eta)
    except ValueError:
        return isoparse(eta)  # as the worker does: ``isoparse`` reads more forms, and is slower


def _seconds(delay: object) -> float:
    try:
        seconds = float(delay)  # type: ignore[arg-type]  # of any type: the except refuses a value that is no number
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not -_MAX_DELAY_S <= seconds <= _MAX_DELAY_S:
        raise InvalidDelay(f"{DELAY_SECONDS}={quoted(delay)} is not a number of seconds up to {_MAX_DELAY_S}")
    return seconds
