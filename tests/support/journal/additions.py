"""Messages for a journal."""

from celery_ext.journal.rows import Addition

#: A due time, far from now, at the beginning of an hour.
DUE_MS = 2_000_000.0 * 3_600_000


def addition(number: int, due_ms: float | None = None, queue: str = "orders", body: bytes | None = None) -> Addition:
    """Makes a message; without a due time, one that is due ``number`` s after ``DUE_MS``."""
    due_ms = DUE_MS + number * 1000 if due_ms is None else due_ms
    return Addition(queue, f"id-{number}", due_ms, 0, body or b"body %d" % number)
