"""What the texts of options mean: each function takes one, and raises ValueError with what is wrong."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery_ext.delays import durations
from celery_ext.delays.levels import DelayLevels

#: Headers that Celery itself writes.
_CELERYS = frozenset(
    (
        *("lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit"),
        *("root_id", "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting"),
        *("stamped_headers", "stamps", "compression"),
    )
)


def text(given: str) -> str:
    """Takes any text but an empty one."""
    if not given.strip():
        raise ValueError("is empty")
    return given


def variable(given: str) -> str:
    """Takes the name of an environment variable."""
    if not re.fullmatch(r"[\w.-]+", given.strip()):
        raise ValueError("is no name of an environment variable")
    return given.strip()


def names(given: str) -> tuple[str, ...]:
    """Takes names, separated by commas."""
    return tuple(text(each).strip() for each in given.split(","))


def switch(given: str) -> bool:
    """Takes ``true`` or ``false``."""
    if given.strip().lower() not in ("true", "false"):
        raise ValueError("is not true or false")
    return given.strip().lower() == "true"


def whole(low: int, high: int = 2**53) -> Callable[[str], int]:
    """Takes whole numbers within bounds."""

    def parse(given: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", given) or not low <= int(given) <= high:
            raise ValueError(f"is not a whole number from {low}{f' to {high}' if high < 2**53 else ' on'}")
        return int(given)

    return parse


def rate(given: str) -> float:
    """Takes a number of messages a second."""
    try:
        found = float(given)
    except ValueError:
        found = 0.0
    if not 0.001 <= found <= 1e9:
        raise ValueError("is not a number of messages a second, such as 500 or 0.5")
    return found


def duration(given: str) -> float:
    """Takes a duration as ``10m`` or ``1h30m``, or a number of s."""
    if re.fullmatch(durations.NUMBER, given.strip()):
        given = f"{given.strip()}s"
    return durations.parse(given.strip())


def some_duration(given: str) -> float:
    """Takes a duration that is longer than 0."""
    if not duration(given):
        raise ValueError("is not longer than 0")
    return duration(given)


def moment(given: str) -> datetime:
    """Takes a time in ISO 8601; without a zone it is in UTC."""
    try:
        found = datetime.fromisoformat(given.strip())
    except ValueError:
        raise ValueError("is not a time in ISO 8601, such as 2030-01-31T12:00:00+00:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def duration_or_moment(given: str) -> float | datetime:
    """Takes either."""
    try:
        return moment(given)
    except ValueError:
        return duration(given)


def json_object(given: str) -> dict[str, Any]:
    """Takes a JSON object."""
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError('is not a JSON object, such as {"name": "value"}')
    return found


def further_headers(given: str) -> dict[str, Any]:
    """Takes a JSON object with message headers beside those of Celery."""
    return check_headers(json_object(given))


def level_table(given: str) -> str:
    """Takes a table of delay levels."""
    return str(DelayLevels.parse(given))


def choice(*among: str) -> Callable[[str], str]:
    """Takes one of some words."""

    def parse(given: str) -> str:
        if given.strip().lower() not in among:
            raise ValueError(f"is not one of {', '.join(among)}")
        return given.strip().lower()

    return parse


def check_headers(found: object) -> dict[str, Any]:
    """Returns headers if they may be added.

    Raises:
        ValueError: They are no JSON object, or have headers that Celery itself writes.
    """
    if not isinstance(found, dict):
        raise ValueError('is not a JSON object, such as {"name": "value"}')
    own = sorted(_CELERYS & found.keys())
    if own:
        raise ValueError(f"sets headers that Celery itself writes: {', '.join(own)}")
    return found
