"""The main job, from ``apply_async`` to the task."""

import time

import pytest

from tests.integration.harness import Proj

pytestmark = pytest.mark.both_forms


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
