"""Task ids that stay the same however often a row is written."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from kombu_delayq.message import text_to_json, to_json


def task_id(task: str, *values: Any) -> str:
    """Returns the task id of a row from the values of its ``id_columns``, so that an app can find the task again.

    Args:
        task: Name of the task.
        *values: Values of the columns, in the order in which the option names them. Times with a zone are in UTC.

    Returns:
        A UUID as text: the first 16 bytes of the SHA-256 of a JSON array with name and values.
    """
    return uuid_of(digest_of(task, [to_json(value) for value in values]))


def digest_of(task: str, values: Sequence[str]) -> str:
    """Returns the SHA-256, in hex digits, of the name of a task and of JSON values."""
    return digest(f"[{text_to_json(task)}, {', '.join(values)}]")


def digest(text: str) -> str:
    """Returns the SHA-256 of a text, in hex digits."""
    return sha256(text.encode()).hexdigest()


def uuid_of(digest: str) -> str:
    """Returns the first 32 hex digits of a digest, written as a UUID."""
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
