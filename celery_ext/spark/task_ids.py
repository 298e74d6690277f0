"""Task ids that stay the same however often a row is written."""

from collections.abc import Sequence
from hashlib import sha256
from itertools import repeat
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
    return uuids_of([digest])[0]


def digests_of(task: str, columns: Sequence[Sequence[str]], count: int) -> list[str]:
    """Returns ``digest_of`` of each row, for rows of one task.

    Args:
        task: Name of the task.
        columns: JSON values by column.
        count: Number of rows.
    """
    form = f"[{text_to_json(task).replace('%', '%%')}, {', '.join(['%s'] * len(columns))}]"
    rows = zip(*columns, strict=True) if columns else repeat((), count)
    return [sha256((form % row).encode()).hexdigest() for row in rows]


def uuids_of(digests: Sequence[str]) -> list[str]:
    """Returns ``uuid_of`` of each digest."""
    return [f"{hex_[:8]}-{hex_[8:12]}-{hex_[12:16]}-{hex_[16:20]}-{hex_[20:32]}" for hex_ in digests]


def tags_of(digests: Sequence[str], salt: str) -> list[str]:
    """Returns delivery tags as JSON texts. They differ between jobs, and are the same in every attempt.

    Args:
        digests: Digests of the tasks.
        salt: 8 hex digits that stand for the job.
    """
    return [f'"{salt}-{hex_[32:36]}-{hex_[36:40]}-{hex_[40:44]}-{hex_[44:56]}"' for hex_ in digests]


def part_of(digest: str) -> float:
    """Returns a number from 0 to 1. Over many tasks the numbers are evenly distributed."""
    return float(int(digest[32:45], 16) / 16**13)
