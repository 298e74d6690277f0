"""What a dead letter says about itself: a property of its message."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from kombu_delayq.message.due import in_utc
from kombu_delayq.message.fields import CHAIN_ID, DELIVERY_COUNT, Message, headers_of, info_of, properties_of

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
    #: No worker of its queue knew its task for as long as the option ``unknown_ttl`` says.
    UNKNOWN_TASK = "unknown task"
    #: None could read it: a body that cannot be decoded, a content type that is not accepted, no task.
    UNREADABLE = "cannot be read"
    #: A row of a DataFrame from which no task can be made.
    BAD_ROW = "bad row"


def _told(about: str, default: Any = None, **more: Any) -> Any:
    """Returns a field of ``LetterRecord``; ``more`` are its metadata, see there."""
    return field(default=default, metadata={"about": about, "is_secret": False, "words": "", **more})


@dataclass(frozen=True, kw_only=True)
class LetterRecord:
    """What a dead letter says of itself: the message property ``DEAD_LETTER``.

    The one table of these fields: ``DeadLetter`` has them as attributes; JSON, OpenAPI and the page are made from it.
    Metadata of a field: ``about``, its meaning; ``kept``, the part of a text that is kept; ``is_secret``, whether it
    may quote arguments, which a server may hide; ``words``, what stands before it on the page, where it is shown so.
    """

    reason: str | None = _told("Why the message was buried; None for a message that kombu-delayq did not bury.")
    error: str | None = _told("The last error of the task.", is_secret=True, kept=slice(ERROR_LENGTH))
    traceback: str | None = _told(
        "Where the last error was raised, as Python prints it; None where no process of the task could say so.",
        is_secret=True,
        kept=slice(-TRACEBACK_LENGTH, None),
    )
    retries: int = _told("How often the task was retried.", 0)
    exchange: str | None = _told("Exchange through which the task came to its worker; empty for the default exchange.")
    routing_key: str | None = _told(
        "Routing key of the task; with the default exchange, the name of its queue.", words="from"
    )
    worker: str | None = _told("Node name of the worker, or the host, that buried the message.", words="on")
    at: datetime | None = _told("When the message was buried, by the clock of who did it.")  # noqa: RUF009  # a field

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """Reads the record of a message; what is missing, or of another type, is as if it were not there."""
        found = properties.get(DEAD_LETTER)
        found = found if isinstance(found, dict) else {}
        return cls(**{one.name: _read(found.get(one.name), one.type, one.default) for one in FIELDS})

    @property
    def shown(self) -> list[tuple[str, Any]]:
        """The fields that stand on the page behind a word, with it."""
        found = [(one.metadata["words"], getattr(self, one.name)) for one in FIELDS]
        return [(words, value) for words, value in found if words and value]

    def written(self) -> dict[str, Any]:
        """Returns the message property."""
        return {one.name: _written(getattr(self, one.name), one.metadata.get("kept")) for one in FIELDS}


#: The fields of ``LetterRecord``, in their order.
FIELDS = fields(LetterRecord)


def _read(value: Any, kind: Any, default: Any) -> Any:
    """Returns the value of a field of a type, as it is written there."""
    if kind == datetime | None:
        try:
            return in_utc(datetime.fromisoformat(value))
        except (TypeError, ValueError):
            return default
    return value if isinstance(value, kind) else default


def _written(value: Any, kept: slice | None) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value[kept] if kept is not None and isinstance(value, str) else value


def record(reason: Reason, error: str | None, **told: Any) -> dict[str, Any]:
    """Returns the message property ``DEAD_LETTER`` of a message that is buried now.

    Args:
        reason: Why.
        error: The last error of the task.
        told: Other fields of ``LetterRecord``.
    """
    return LetterRecord(reason=str(reason), error=error, at=datetime.now(UTC), **told).written()


def text_of(error: BaseException) -> str:
    """Returns an error as a line: its class and what it says, at most ``ERROR_LENGTH`` characters."""
    try:
        return f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
    except Exception as reason:  # the error's own __str__ failed
        return f"{type(error).__name__}, which cannot be shown: {reason!r}"[:ERROR_LENGTH]


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


def unrunnable(message: Message, reason: Reason, error: str, worker: str, queue: str) -> Message:
    """Returns a message as a dead letter that no worker could run. It is as ``beyond_delivery_limit`` makes it.

    Args:
        message: The message.
        reason: ``UNKNOWN_TASK`` or ``UNREADABLE``.
        error: What the last worker says.
        worker: Node name of that worker.
        queue: Queue of dead letters.
    """
    return _buried(message, reason, error, worker, queue)


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
