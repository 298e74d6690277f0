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
    value = _last(condition, bool, timeout_s)
    if not value:
        raise AssertionError(f"not within {timeout_s} s: {what or condition}; last value {value!r}")
    return value


def until_equal(get: Callable[[], T], expected: T, timeout_s: float = DEADLINE_S, what: str = "") -> None:
    """Waits until a value is the expected one. A test that fails shows in what its last value differs."""
    value = _last(get, lambda value: value == expected, timeout_s)
    assert value == expected, f"not within {timeout_s} s: {what or get}"


def stays(condition: Callable[[], object], for_s: float, what: str = "") -> None:
    """Fails the test as soon as ``condition`` is false within ``for_s``, the delay under test."""
    deadline = monotonic() + for_s
    while monotonic() < deadline:
        value = condition()
        assert value, f"did not stay true for {for_s} s: {what or condition}; value {value!r}"
        sleep(0.05)


def _last(get: Callable[[], T], is_wanted: Callable[[T], bool], timeout_s: float) -> T:
    """Returns a value as soon as it is wanted, or the last one within ``timeout_s``."""
    deadline = monotonic() + timeout_s
    while True:
        begun = monotonic()
        value = get()
        if is_wanted(value) or monotonic() > deadline:
            return value
        sleep(min(max(2 * (monotonic() - begun), 0.01), 0.5))
