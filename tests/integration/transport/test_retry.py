"""``retry()``: each retry waits in Redis."""

import time
from itertools import pairwise
from typing import Any

import pytest

from tests.support.conditions import until
from tests.support.workers.harness import Proj

pytestmark = pytest.mark.both_layouts

COUNTDOWN_S = 3


def _held_by_worker(proj: Proj) -> list[Any]:
    """Returns what the worker has of the task: scheduled, reserved, running, or not acknowledged."""
    inspect = proj.app.control.inspect(destination=[proj.workers[0].node], timeout=5)
    held: list[Any] = proj.server.client().hkeys("unacked")
    for replies in (inspect.scheduled(), inspect.reserved(), inspect.active()):
        assert replies, "the worker does not answer"
        told = [task.get("request", task) for tasks in replies.values() for task in tasks]
        held += [task for task in told if task["hostname"] != "broker"]
    return held


@pytest.mark.journey
def test_each_retry_waits_in_redis_and_runs_once(proj: Proj) -> None:
    """A task that is retried waits in Redis and nowhere else, comes when its countdown is over, and then succeeds."""
    proj.worker(concurrency=1)
    sent = proj.send("flaky", 2, countdown=0, kwargs={"countdown": COUNTDOWN_S})
    until(lambda: proj.delayed() == 1)
    until(lambda: not _held_by_worker(proj))
    assert len(proj.runs()) == 1
    assert sent.state == "RETRY"

    assert sent.get(timeout=30) == 2
    runs = proj.runs()
    assert [run["retries"] for run in runs] == [0, 1, 2]
    assert {run["id"] for run in runs} == {sent.id}
    for before, after in pairwise(runs):
        assert after["at"] >= before["at"] + COUNTDOWN_S
    assert proj.delayed() == 0


def test_a_retry_outlives_its_worker(proj: Proj) -> None:
    """A worker killed while a retry waits takes nothing with it: the next worker runs the retry, on time and once."""
    first = proj.worker(concurrency=1)
    sent = proj.send("flaky", 1, kwargs={"countdown": COUNTDOWN_S})
    until(lambda: proj.delayed() == 1 and proj.server.client().hlen("unacked") == 0)
    first.kill()
    proj.worker(concurrency=1)
    assert sent.get(timeout=30) == 1
    runs = proj.runs()
    assert [run["retries"] for run in runs] == [0, 1]
    assert runs[1]["at"] >= runs[0]["at"] + COUNTDOWN_S
    assert time.time() >= runs[1]["at"]
