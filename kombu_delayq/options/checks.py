"""Checks of the values of transport options, and what an option that differs from queue to queue means for one queue.

A check returns the value, or raises ValueError with what is wrong.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

#: Checks a value.
Check = Callable[[object], Any]
#: In a mapping of queues: all queues that it does not name.
REST = "*"
#: What can happen to a message that is too late.
POLICIES = ("run", "dead-letter", "drop")
#: Least and most messages a second of a queue: one in about twelve days, and more than Redis can transfer.
RATES = (0.000001, 1_000_000)


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


class QueueLimits(NamedTuple):
    """What limits the transfer of a queue's messages.

    Attributes:
        overdue: What happens to a message that is too late, one of ``POLICIES``.
        max_lateness_ms: How late a message may be that still runs, in ms; None if it always runs.
        rate: Most messages a second; None for no limit.
        burst: How many messages may go at once after a pause.
    """

    overdue: str
    max_lateness_ms: float | None
    rate: float | None
    burst: float


def per_queue(check: Check) -> Check:
    """Makes a check of one value for all queues, or of a mapping of queues to values."""

    def check_each(value: object) -> Any:
        if not isinstance(value, Mapping):
            return check(value)
        each_queue(value, check, f", nor {REST!r} for all others")
        return value

    return check_each


def rate(value: object) -> Any:
    """Checks messages a second, or these with a burst."""
    if value is None or not isinstance(value, (list, tuple)):
        return value if value is None else number(*RATES)(value)
    if len(value) != 2:
        raise ValueError("is not a number of messages a second, nor that and a burst, such as [50, 200]")
    number(*RATES)(value[0])
    number(1, 1_000_000)(value[1])
    return value


def limits_of(queue: str, overdue: Any, max_lateness: Any, transfer_rate: Any) -> QueueLimits | None:
    """Returns the limits of a queue, from the values of the options; None if it has none."""
    policy, max_s = _value_for(queue, overdue, "run"), _value_for(queue, max_lateness, None)
    given = _value_for(queue, transfer_rate, None)
    a_second, burst = given if isinstance(given, (list, tuple)) else (given, max(given or 1, 1))
    max_ms = None if policy == "run" or max_s is None else 1000 * max_s
    return None if max_ms is None and a_second is None else QueueLimits(policy, max_ms, a_second, burst)


def contradiction(overdue: Any, max_lateness: Any) -> str:
    """Returns what is wrong with two values together; empty if nothing is."""
    policies = dict(overdue) if isinstance(overdue, Mapping) else {REST: overdue}
    for queue, policy in policies.items():
        if policy != "run" and _value_for(queue, max_lateness, None) is None:
            of = "" if queue == REST else f" for queue {queue!r}"
            return f"overdue={policy!r}{of} needs max_lateness, which says from when on a message is too late"
    if max_lateness is not None and set(policies.values()) == {"run"}:
        return (
            f"max_lateness={max_lateness!r} has no effect, because overdue is 'run': set it to 'dead-letter' or 'drop'"
        )
    return ""


def _value_for(queue: str, value: Any, default: Any) -> Any:
    return value.get(queue, value.get(REST, default)) if isinstance(value, Mapping) else value
