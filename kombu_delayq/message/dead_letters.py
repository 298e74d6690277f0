"""What a dead letter says about itself: a property of its message."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from kombu_delayq.message.due import ms_of
from kombu_delayq.message.fields import CHAIN_ID, DELIVERY_COUNT, Message, headers_of, info_of, properties_of, read

#: Message property that says why a message is among the dead letters, see ``record``.
DEAD_LETTER = "dead_letter"
#: Message property of a task that waits for a retry: the error of the run before, as ``text_of`` returns it.
LAST_ERROR = "last_error"
#: Most characters kept of an error, and of its traceback, whose end says most.
ERROR_LENGTH, TRACEBACK_LENGTH = 1000, 8000


class Reason(StrEnum):
    """Why a message is buried. The values are those of ``DeadLetter.reason``."""

    CHAIN_EXHAUSTED = "delay chain exhausted"
    RETRIES_EXHAUSTED = "retries exhausted"
    FAILED = "failed"
    TIME_LIMIT = "time limit exceeded"
    WORKER_LOST = "worker lost"
    #: It was in the hands of consumers that died, as often as the option ``delivery_limit`` says.
    DELIVERY_LIMIT = "delivery limit reached"
    #: Its turn came later than the option ``max_lateness`` allows.
    TOO_LATE = "too late"
    #: A row of a DataFrame from which no task can be made.
    BAD_ROW = "bad row"


def record(
    reason: Reason,
    error: str | None,
    *,
    traceback: str | None = None,
    retries: int,
    exchange: str | None,
    routing_key: str | None,
    worker: str | None,
) -> dict[str, Any]:
    """Returns the message property ``DEAD_LETTER``. ``DeadLetter`` has its entries as attributes of the same names.

    Args:
        reason: Why the message is buried.
        error: The last error of the task, which is cut to ``ERROR_LENGTH``.
        traceback: Its traceback, of which the last ``TRACEBACK_LENGTH`` characters are kept.
        retries: How often the task was retried.
        exchange: Exchange through which the task came to its worker.
        routing_key: Routing key of the task.
        worker: Node name of the worker, or the host, that buries it; the consumer that died last with it.
    """
    return {
        "reason": str(reason),
        "error": None if error is None else error[:ERROR_LENGTH],
        "traceback": None if traceback is None else traceback[-TRACEBACK_LENGTH:],
        "retries": retries,
        "exchange": exchange,
        "routing_key": routing_key,
        "worker": worker,
        "at": datetime.now(UTC).isoformat(),
    }


def text_of(error: BaseException) -> str:
    """Returns an error as a line: its class and what it says, at most ``ERROR_LENGTH`` characters."""
    try:
        return f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
    except Exception as reason:  # the error's own __str__ failed
        return f"{type(error).__name__}, which cannot be shown: {reason!r}"[:ERROR_LENGTH]


def buried_ms(raw: bytes) -> float | None:
    """Returns when a message was buried, ms since the epoch, by the clock of who did it; None for no dead letter."""
    why = properties_of(read(raw)).get(DEAD_LETTER)
    try:
        return ms_of(datetime.fromisoformat(why["at"])) if isinstance(why, dict) else None
    except (KeyError, TypeError, ValueError):
        return None


def beyond_delivery_limit(message: Message, count: int, consumer: str, queue: str) -> Message:
    """Returns a message as a dead letter that has killed its consumers, or died with them.

    As with other dead letters, it is as it was first sent: without retries and without expiry. Its body is unchanged,
    so it keeps its chord.

    Args:
        message: The message as it was before its last delivery.
        count: How often it was in the hands of a consumer that died.
        consumer: Name of the last one.
        queue: Queue of dead letters.
    """
    return _buried(message, Reason.DELIVERY_LIMIT, f"{count} consumers died with it in their hands", consumer, queue)


def too_late(message: Message, late_ms: float, most_ms: float, came_from: str, queue: str) -> Message:
    """Returns a message as a dead letter whose turn came too late. It is as ``beyond_delivery_limit`` makes it.

    Args:
        message: The message as it waited.
        late_ms: How late it was, in ms.
        most_ms: How late it may have been, in ms.
        came_from: Queue in which it waited. It is the way back for a message without an address.
        queue: Queue of dead letters.
    """
    error = f"due {late_ms / 1000:.1f} s before its turn came, which is more than max_lateness={most_ms / 1000:g}"
    buried = _buried(message, Reason.TOO_LATE, error, None, queue)
    why = buried["properties"][DEAD_LETTER]
    if why["routing_key"] is None:
        why["exchange"], why["routing_key"] = "", came_from
    return buried


def _buried(message: Message, reason: Reason, error: str, worker: str | None, queue: str) -> Message:
    """Returns a message as a dead letter that has not run to its end."""
    headers, properties = headers_of(message), properties_of(message)
    address, retries = info_of(message), headers.get("retries")
    why = record(
        reason,
        error,
        retries=retries if isinstance(retries, int) else 0,
        exchange=_text(address.get("exchange")),
        routing_key=_text(address.get("routing_key")),
        worker=worker,
    )
    begun_anew = {name: value for name, value in (("retries", 0), ("expires", None)) if name in headers}
    kept = {name: value for name, value in properties.items() if name not in (DELIVERY_COUNT, CHAIN_ID, LAST_ERROR)}
    return {
        **message,
        "headers": {**_without_mark(headers), **begun_anew},
        "properties": {
            **kept,
            "delivery_info": {**_without_mark(address), "exchange": "", "routing_key": queue},
            DEAD_LETTER: why,
        },
    }


def _without_mark(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "redelivered"}


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None
