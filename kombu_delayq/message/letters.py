"""What a dead letter says about itself: a property of its message."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from kombu_delayq.message.fields import CHAIN_ID, DELIVERY_COUNT, Message, headers_of, info_of, properties_of

#: Message property that says why a message is among the dead letters, see ``record``.
DEAD_LETTER = "dead_letter"
#: Most characters kept of an error.
ERROR_LENGTH = 1000


class Reason(StrEnum):
    """Why a message is buried. The values are those of ``DeadLetter.reason``."""

    CHAIN_EXHAUSTED = "delay chain exhausted"
    RETRIES_EXHAUSTED = "retries exhausted"
    FAILED = "failed"
    TIME_LIMIT = "time limit exceeded"
    WORKER_LOST = "worker lost"
    #: It was in the hands of consumers that died, as often as the option ``delivery_limit`` says.
    DELIVERY_LIMIT = "delivery limit reached"
    #: A row of a DataFrame from which no task can be made.
    BAD_ROW = "bad row"


def record(
    reason: Reason,
    error: str | None,
    *,
    retries: int,
    exchange: str | None,
    routing_key: str | None,
    worker: str | None,
) -> dict[str, Any]:
    """Returns the message property ``DEAD_LETTER``. ``DeadLetter`` has its entries as attributes of the same names.

    Args:
        reason: Why the message is buried.
        error: The last error of the task, which is cut to ``ERROR_LENGTH``.
        retries: How often the task was retried.
        exchange: Exchange through which the task came to its worker.
        routing_key: Routing key of the task.
        worker: Node name of the worker, or the host, that buries it; the consumer that died last with it.
    """
    return {
        "reason": str(reason),
        "error": None if error is None else error[:ERROR_LENGTH],
        "retries": retries,
        "exchange": exchange,
        "routing_key": routing_key,
        "worker": worker,
        "at": datetime.now(UTC).isoformat(),
    }


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
    headers, properties = headers_of(message), properties_of(message)
    address, retries = info_of(message), headers.get("retries")
    buried = record(
        Reason.DELIVERY_LIMIT,
        f"{count} consumers died with it in their hands",
        retries=retries if isinstance(retries, int) else 0,
        exchange=_text(address.get("exchange")),
        routing_key=_text(address.get("routing_key")),
        worker=consumer,
    )
    begun_anew = {name: value for name, value in (("retries", 0), ("expires", None)) if name in headers}
    kept = {name: value for name, value in properties.items() if name not in (DELIVERY_COUNT, CHAIN_ID)}
    return {
        **message,
        "headers": {**_without_mark(headers), **begun_anew},
        "properties": {
            **kept,
            "delivery_info": {**_without_mark(address), "exchange": "", "routing_key": queue},
            DEAD_LETTER: buried,
        },
    }


def _without_mark(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "redelivered"}


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None
