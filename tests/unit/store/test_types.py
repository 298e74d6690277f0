"""What the results of the store's operations say of themselves."""

from math import inf

import pytest

from kombu_delayq.store.counts import LATENESS_BOUNDS_S, Histogram, QueueStats
from kombu_delayq.store.types import Transferred


@pytest.mark.parametrize(
    ("next_due_ms", "more"), [(None, False), (999.999, True), (1000.0, True), (1000.001, False), (0.0, True)]
)
def test_more_is_due_when_the_next_is_due_by_now(next_due_ms: float | None, more: bool) -> None:
    """A transfer says that more is due when the queue's next message is due at Redis's clock or before."""
    assert Transferred(0, 0, 0.0, 1000.0, next_due_ms).more is more


@pytest.mark.parametrize(
    ("next_due_ms", "overdue_ms"), [(None, 0.0), (400.5, 599.5), (1000.0, 0.0), (5000.0, 0.0), (0.0, 1000.0)]
)
def test_overdue_is_the_age_of_the_oldest_due_message(next_due_ms: float | None, overdue_ms: float) -> None:
    """A queue is overdue by the time since its oldest due message was due, and by nothing if none is due."""
    stats = QueueStats("q", 1000.0, delayed=3, ready=1, overdue=2, next_due_ms=next_due_ms)
    assert stats.overdue_ms == overdue_ms


#: Half of the messages were late by 25 to 50 ms, the other half by 0.5 to 1 s.
BUCKETS = tuple(0 if bound < 0.05 else 10 if bound < 1 else 20 for bound in LATENESS_BOUNDS_S)


def test_lateness_is_estimated_between_two_bounds() -> None:
    """A quantile is in proportion between the bounds around it; beyond the last bound it is not known."""
    lateness = Histogram(LATENESS_BOUNDS_S, BUCKETS, 0.0, 20)
    assert lateness.quantile(0.25) == pytest.approx(0.0375)
    assert lateness.quantile(0.75) == pytest.approx(0.75)
    assert Histogram(LATENESS_BOUNDS_S, BUCKETS, 0.0, 100).quantile(0.99) == inf
    assert Histogram(LATENESS_BOUNDS_S, BUCKETS, 0.0, 0).quantile(0.5) is None
