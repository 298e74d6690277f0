from math import inf

import pytest

from kombu_delayq.store.counts import LATENESS_BOUNDS_S, Lateness

#: Half of the messages were late by 25 to 50 ms, the other half by 0.5 to 1 s.
BUCKETS = tuple(0 if bound < 0.05 else 10 if bound < 1 else 20 for bound in LATENESS_BOUNDS_S)


def test_lateness_is_estimated_between_two_bounds() -> None:
    """A quantile is in proportion between the bounds around it; beyond the last bound it is not known."""
    lateness = Lateness(BUCKETS, 0.0, 20)
    assert lateness.quantile(0.25) == pytest.approx(0.0375)
    assert lateness.quantile(0.75) == pytest.approx(0.75)
    assert Lateness(BUCKETS, 0.0, 100).quantile(0.99) == inf
    assert Lateness(BUCKETS, 0.0, 0).quantile(0.5) is None
