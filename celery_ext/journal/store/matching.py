"""Finds the rows of messages that were read."""

from collections.abc import Sequence

from celery_ext.journal.table import WAITING, Row
from kombu_delayq.errors import UnreadableMessage
from kombu_delayq.message.rewrite import with_eta
from kombu_delayq.store.types import JOURNAL, Waiting
from kombu_delayq.store.viewing.scan import whole_ms

#: Due time and body of a message, by which a row is known.
Read = tuple[float, bytes]


def as_read(due_ms: float, body: bytes) -> Read:
    """Returns what is compared; Redisson's layout keeps whole ms."""
    return whole_ms(due_ms), body


def rows_as_read(rows: Sequence[Row], messages: Sequence[Waiting]) -> list[Row | None]:
    """Returns for each message its row as it was read: one that waits for a message of the journal, else any.

    Args:
        rows: Rows of the ids and of the queue of the messages.
        messages: The messages.
    """
    by_content: dict[Read, list[Row]] = {}
    for row in rows:
        by_content.setdefault(as_read(row.due_ms, row.body), []).append(row)
    found: list[Row | None] = []
    for one in messages:
        same = by_content.get(as_read(one.due_ms, one.body or b""), [])
        fitting = [row for row in same if one.layout != JOURNAL or row.state == WAITING]
        found.append(fitting[0] if fitting else None)
        if fitting:
            same.remove(fitting[0])
    return found


def rows_at_any_time(rows: Sequence[Row], messages: Sequence[Waiting]) -> list[Row | None]:
    """Returns for each message its row; for a message in Redis without one as it was read, one with another due time.

    While a caller moves a message, its row has another due time than the message.

    Args:
        rows: As of ``rows_as_read``.
        messages: As of ``rows_as_read``.
    """
    found = rows_as_read(rows, messages)
    left = [row for row in rows if row.state != WAITING and row not in found]
    for at, one in enumerate(messages):
        if left and found[at] is None and one.layout != JOURNAL:
            found[at] = next((row for row in left if _is_same(row.body, one.body or b"")), None)
            left = [row for row in left if row is not found[at]]
    return found


def _is_same(body: bytes, other: bytes) -> bool:
    """Whether two bodies are of one message, but for the eta."""
    try:
        return body == other or with_eta(body, 0.0) == with_eta(other, 0.0)
    except UnreadableMessage:
        return False
