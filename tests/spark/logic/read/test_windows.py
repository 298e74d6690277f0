"""Due times are cut into windows with about as many messages each, and each due time is in one of them."""

from itertools import pairwise
from math import inf

import pytest

from celery_ext.spark.read.partitions import WaitingSelection, Weight, WindowPartition, windows


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("selection", [WaitingSelection(), WaitingSelection(None, 1_000.0, 9_000.0)])
def test_windows_have_each_due_time_once(count: int, selection: WaitingSelection) -> None:
    """Windows follow one another from the first due time of the selection to the last, without a gap."""
    found = windows(selection, [Weight(100.0 * n, 10) for n in range(100)], count)
    assert found[0].from_ms == selection.from_ms
    assert found[-1].to_ms == selection.to_ms
    assert all(one.to_ms == next_one.from_ms for one, next_one in pairwise(found))
    assert all(one.from_ms < one.to_ms for one in found)
    assert len(found) <= count


def test_windows_have_equal_shares_of_all_tiers() -> None:
    """Weights of several tiers count together, and the windows get about as many messages each."""
    near = [Weight(float(n), 10) for n in range(1, 101)]
    far = [Weight(500.0, 500), Weight(600.0, 500)]
    found = windows(WaitingSelection(), [*far, *near], 4)
    assert found == [
        WindowPartition(-inf, 50.0),
        WindowPartition(50.0, 100.0),
        WindowPartition(100.0, 500.0),
        WindowPartition(500.0, inf),
    ]


def test_messages_of_one_due_time_are_in_one_window() -> None:
    """Where all are due at once there is one window with messages, whatever number of windows is wanted."""
    found = windows(WaitingSelection(), [Weight(5.0, 100)] * 10, 4)
    assert found == [WindowPartition(-inf, 5.0), WindowPartition(5.0, inf)]


def test_nothing_waits() -> None:
    """Without messages there is one window with all due times, which has what comes later."""
    assert windows(WaitingSelection(), [], 8) == [WindowPartition(-inf, inf)]
