"""Checks of the values of transport options. A check returns the value, or raises ValueError with what is wrong."""

import math
from collections.abc import Callable, Mapping
from typing import Any

#: Checks a value.
Check = Callable[[object], Any]


def switch(value: object) -> bool:
    """Checks a bool."""
    if not isinstance(value, bool):
        raise ValueError("is not True or False")
    return value


def number(low: float, high: float = math.inf, *, whole: bool = False) -> Callable[[object], Any]:
    """Makes a check of a number within bounds."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise ValueError(f"is not a {'whole ' if whole else ''}number")
        if not low <= value <= high or math.isinf(value):
            raise ValueError(f"is not {f'from {low} to {high}' if high < math.inf else f'{low} or more'}")
        return value

    return check


def choice(*names: str) -> Callable[[object], str]:
    """Makes a check of one of some names."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"is not one of {', '.join(map(repr, names))}")
        return value

    return check


def each_queue(value: Mapping[object, object], check: Check, nor: str = "") -> None:
    """Checks a mapping of queues to values.

    Args:
        value: The mapping.
        check: Checks one of the values.
        nor: What else a name may be, for the error.
    """
    for queue, of_queue in value.items():
        if not isinstance(queue, str) or not queue:
            raise ValueError(f"has {queue!r}, which is not the name of a queue{nor}")
        try:
            check(of_queue)
        except ValueError as reason:
            raise ValueError(f"has {of_queue!r} for {queue!r}, which {reason}") from None


def queue_name(value: object) -> str:
    """Checks the name of a queue."""
    if not isinstance(value, str) or not value:
        raise ValueError("is not the name of a queue")
    return value


def text(value: object) -> str:
    """Checks a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("is not a text")
    return value


def or_none(check: Callable[[object], Any]) -> Callable[[object], Any]:
    """Makes a check that also takes None."""
    return lambda value: None if value is None else check(value)
