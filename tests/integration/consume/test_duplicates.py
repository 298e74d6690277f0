"""The visibility timeout and messages that are due beyond it (kombu issue 337)."""

import time
from typing import Any

import pytest

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.visibility import sweep, swept_after

VISIBILITY_S = 2
COUNTDOWN_S = 8
WORKERS = 3


def _run_beyond_the_visibility_timeout(proj: Proj) -> list[dict[str, Any]]:
    """Runs a task long after the visibility timeout, and returns its runs in the seconds after its due time."""
    for worker in [proj.worker(pool="solo", wait=False) for _ in range(WORKERS)]:
        worker.ready()
    due = time.time() + COUNTDOWN_S
    proj.send("record", countdown=COUNTDOWN_S)

    def is_over() -> bool:
        sweep(proj)
        return time.time() > due + VISIBILITY_S

    until(is_over, COUNTDOWN_S + VISIBILITY_S + 5)
    runs = proj.await_runs(1)
    assert all(run["at"] >= due for run in runs)
    return runs


def test_a_task_due_beyond_the_visibility_timeout_runs_once(make_proj: MakeProj) -> None:
    """With our transport a task whose countdown is longer than the visibility timeout runs once."""
    proj = make_proj(broker_transport_options=swept_after(VISIBILITY_S))
    assert len(_run_beyond_the_visibility_timeout(proj)) == 1


@pytest.mark.nightly
def test_the_same_task_runs_more_than_once_on_the_stock_transport(make_proj: MakeProj) -> None:
    """On kombu's own transport the same task under the same settings runs more than once."""
    proj = make_proj(broker_transport="", broker_transport_options=swept_after(VISIBILITY_S))
    _run_beyond_the_visibility_timeout(proj)
    proj.await_runs(2)
