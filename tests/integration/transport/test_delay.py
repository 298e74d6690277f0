"""The main job, from ``apply_async`` to the task."""

import time

import pytest

from tests.support.workers.harness import Proj

pytestmark = pytest.mark.both_layouts


@pytest.mark.journey
def test_countdown_waits_in_redis_and_runs_once_not_early(proj: Proj) -> None:
    """A task with a countdown waits in Redis, not in the worker, and runs once, not before its time."""
    proj.worker()
    due = time.time() + 2
    sent = proj.send("record", "x", countdown=2)
    assert proj.lengths() == (1, 1)
    [run] = proj.await_runs(1)
    assert run["id"] == sent.id
    assert run["at"] >= due
    assert not proj.server.client().exists(*proj.keys())


def test_publishing_with_a_countdown_costs_one_round_trip(proj: Proj) -> None:
    """Each ``apply_async`` with a countdown makes Redis read once, as one without does."""
    client = proj.server.client()

    def reads_per_task(**options: float) -> float:
        for _ in range(3):  # opens connections, declares the queue, loads the script
            proj.send("record", ignore_result=True, **options)
        before = client.info("stats")["total_reads_processed"]
        for _ in range(20):
            proj.send("record", ignore_result=True, **options)
        after = client.info("stats")["total_reads_processed"]
        return (int(after) - int(before) - 1) / 20  # the question is read too

    assert reads_per_task(countdown=600) == reads_per_task() == 1
