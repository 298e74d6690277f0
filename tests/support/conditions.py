"""Waiting on conditions, with a deadline, instead of sleeping."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")

#: How long a condition may take to become true, in s: long on a busy machine, and shorter than polls of tests in which
#: no poll may help.
DEADLINE_S = 45.0


def until(condition: Callable[[], T], timeout_s: float = DEADLINE_S, what: str = "") -> T:
    """Returns the value of ``condition`` as soon as it is true; fails the test after ``timeout_s``.

    A slow condition is asked less often: other tests need the processor.
    """
    deadline = monotonic() + timeout_s
    while True:
        begun = monotonic()
        value = condition()
        if value:
            return value
        if monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}; last value {value!r}")
        sleep(min(max(2 * (monotonic() - begun), 0.01), 0.5))


def stays(condition: Callable[[], object], for_s: float, what: str = "") -> None:
    """Fails the test as soon as ``condition`` is false within ``for_s``, the delay under test."""
    deadline = monotonic() + for_s
    while monotonic() < deadline:
        value = condition()
        assert value, f"did not stay true for {for_s} s: {what or condition}; value {value!r}"
        sleep(0.05)
