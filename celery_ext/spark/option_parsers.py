"""Parsers of option texts. Each takes a text, and raises ValueError with what is wrong with it."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery_ext.delays import DelayChain, DelayLevels, durations
from celery_ext.limits import read_key

#: Headers that Celery itself writes.
_OF_CELERY = frozenset(
    (
        *("lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit"),
        *("root_id", "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting"),
        *("stamped_headers", "stamps", "compression"),
    )
)
#: Limit of whole numbers for which an option sets none: a double has every whole number up to it exactly.
_LARGEST = 2**53


def text(given: str) -> str:
    """Accepts any text that is not blank."""
    if not given.strip():
        raise ValueError("is empty")
    return given


def variable(given: str) -> str:
    """Returns the name of an environment variable."""
    name = given.strip()
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError("is not the name of an environment variable")
    return name


def names(given: str) -> tuple[str, ...]:
    """Returns names, which are separated by commas."""
    return tuple(text(name).strip() for name in given.split(","))


def switch(given: str) -> bool:
    """Returns ``true`` or ``false`` as a bool."""
    word = given.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("is not true or false")
    return word == "true"


def whole(low: int, high: int = _LARGEST) -> Callable[[str], int]:
    """Returns a parser of whole numbers from ``low`` to ``high``."""

    def parse(given: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", given) or not low <= int(given) <= high:
            raise ValueError(f"is not a whole number from {low}{f' to {high}' if high < _LARGEST else ' on'}")
        return int(given)

    return parse


def rate(given: str) -> float:
    """Returns a number of messages a second, or 0."""
    try:
        number = float(given)
    except ValueError:
        number = -1.0
    if number and not 0.001 <= number <= 1e9:
        raise ValueError("is not a number of messages a second, such as 500 or 0.5")
    return number


def duration(given: str) -> float:
    """Returns a duration in s. The text is a number of s, or has units, such as ``10m`` or ``1h30m``."""
    if re.fullmatch(durations.NUMBER, given.strip()):
        given = f"{given.strip()}s"
    return durations.parse(given.strip())


def some_duration(given: str) -> float:
    """Returns a duration in s that is longer than 0."""
    seconds = duration(given)
    if not seconds:
        raise ValueError("is not longer than 0")
    return seconds


def moment(given: str) -> datetime:
    """Returns a time. The text is in ISO 8601; without a zone it is in UTC."""
    try:
        time = datetime.fromisoformat(given.strip())
    except ValueError:
        raise ValueError("is not a time in ISO 8601, such as 2030-01-31T12:00:00+00:00") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def duration_or_moment(given: str) -> float | datetime:
    """Returns a time, or a duration in s."""
    try:
        return moment(given)
    except ValueError:
        return duration(given)


def json_object(given: str) -> dict[str, Any]:
    """Returns a JSON object as a dict."""
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    return _check_object(found)


def further_headers(given: str) -> dict[str, Any]:
    """Returns message headers from a JSON object."""
    return check_headers(json_object(given))


def check_headers(found: object) -> dict[str, Any]:
    """Returns message headers.

    Args:
        found: The headers, parsed from JSON.

    Raises:
        ValueError: They are not a JSON object, or have a header that Celery itself writes.
    """
    headers = _check_object(found)
    forbidden = sorted(_OF_CELERY & headers.keys())
    if forbidden:
        raise ValueError(f"sets headers that Celery itself writes: {', '.join(forbidden)}")
    return headers


def chain_text(given: str) -> str:
    """Returns a delay chain as text."""
    return DelayChain.parse(given).text


def limit_key(given: str) -> str:
    """Returns the key of a limit, or an empty text."""
    return read_key(given)


def level_table(given: str) -> str:
    """Returns a table of delay levels as text."""
    return str(DelayLevels.parse(given))


def choice(*words: str) -> Callable[[str], str]:
    """Returns a parser of one of these words, in any case."""

    def parse(given: str) -> str:
        word = given.strip().lower()
        if word not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return word

    return parse


def _check_object(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError('is not a JSON object, such as {"name": "value"}')
    return found
