"""Task ids that are the same however often a row is written."""

from collections.abc import Sequence
from hashlib import sha256
from itertools import repeat
from typing import Any

from celery_ext.bulk.encoding import text_to_json, to_json


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
    return digest(f"[{text_to_json(task)}, {', '.join(values)}]")


def digest(text: str) -> str:
    """Returns the SHA-256 of a text, in hex digits."""
    return sha256(text.encode()).hexdigest()


def uuid_of(digest: str) -> str:
    """Returns the first 32 hex digits as a UUID is written."""
    return uuids_of([digest])[0]


def digests_of(task: str, columns: Sequence[Sequence[str]], count: int) -> list[str]:
    """Returns ``digest_of`` of all rows of one task, whose columns are given as JSON."""
    form = f"[{text_to_json(task).replace('%', '%%')}, {', '.join(['%s'] * len(columns))}]"
    rows = zip(*columns, strict=True) if columns else repeat((), count)
    return [sha256((form % row).encode()).hexdigest() for row in rows]


def uuids_of(digests: Sequence[str]) -> list[str]:
    """Returns ``uuid_of`` of all."""
    return [f"{each[:8]}-{each[8:12]}-{each[12:16]}-{each[16:20]}-{each[20:32]}" for each in digests]


def tags_of(digests: Sequence[str], salt: str) -> list[str]:
    """Returns delivery tags, as JSON: others than those of the same tasks in another job, the same in every attempt.

    Args:
        digests: Of the tasks.
        salt: 8 hex digits that stand for the job.
    """
    return [f'"{salt}-{each[32:36]}-{each[36:40]}-{each[40:44]}-{each[44:56]}"' for each in digests]


def part_of(digest: str) -> float:
    """Returns a number from 0 to 1, evenly distributed over tasks."""
    return float(int(digest[32:45], 16) / 16**13)
