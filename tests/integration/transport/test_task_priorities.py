"""Priorities, several queues, and the order among messages that are due together."""

import time

import pytest

from tests.support.workers.harness import Proj

pytestmark = pytest.mark.both_layouts


def _soon(delay_s: float = 2) -> float:
    return time.time() + delay_s


def _iso(due: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(due)) + f".{int(due % 1 * 1e6):06d}+00:00"


def test_tasks_due_in_the_same_instant_run_as_they_were_published(proj: Proj) -> None:
    """Tasks with one eta run in the order of publishing, those of a higher priority first; none is early."""
    proj.worker(pool="solo")
    due = _soon(4)
    for n in range(250):  # more than one batch
        proj.send("record", n, eta=_iso(due))
    for n in range(250, 290):
        proj.send("record", n, eta=_iso(due + 2), priority=9 if n < 270 else 0)
    runs = proj.await_runs(290)
    assert [run["value"] for run in runs] == [*range(250), *range(270, 290), *range(250, 270)]
    assert all(run["at"] >= due + 2 * (run["value"] >= 250) for run in runs)
