"""Task ids that are the same however often a row is written."""

from collections.abc import Sequence
from hashlib import sha256
from json.encoder import encode_basestring_ascii as as_json_string
from typing import Any

from celery_ext.spark.values import to_json


def task_id(task: str, *values: Any) -> str:
    """Returns the id that a row has whose ``id_columns`` have these values, so that the task can be found again.

    Args:
        task: Name of the task.
        *values: Of the columns, in the order in which the option names them; times with a zone in UTC.

    Returns:
        A UUID as text: the first 16 bytes of the SHA-256 of the JSON of all.
    """
    return uuid_of(digest_of(task, [to_json(value) for value in values]))


def digest_of(task: str, values: Sequence[str]) -> str:
    """Returns the SHA-256, in hex digits, of a task's name and of values that are given as JSON."""
    return digest(f"[{as_json_string(task)}, {', '.join(values)}]")


def digest(text: str) -> str:
    """Returns the SHA-256 of a text, in hex digits."""
    return sha256(text.encode()).hexdigest()


def uuid_of(digest: str) -> str:
    """Returns the first 32 hex digits as a UUID is written."""
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def tag_of(digest: str, salt: str) -> str:
    """Returns a delivery tag: other than that of the same task in another job, and the same in every attempt.

    Args:
        digest: Of the task.
        salt: 8 hex digits that stand for the job.
    """
    return f"{salt}-{digest[32:36]}-{digest[36:40]}-{digest[40:44]}-{digest[44:56]}"


def part_of(digest: str) -> float:
    """Returns a number from 0 to 1, evenly distributed over tasks."""
    return float(int(digest[32:45], 16) / 16**13)
