"""Delay chains whose worker or Redis goes away."""

from collections import Counter

import pytest

from celery_ext import run_now
from tests.support.conditions import until
from tests.support.workers.chains import (
    TASKS,
    assert_steps,
    delay_of_step,
    error_of,
    retries_of,
    steps_of,
    waiting_step,
    watched,
)
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.visibility import give_back

pytestmark = pytest.mark.wide


def await_runs(proj: Proj, runs: dict[str, int]) -> None:
    """Waits for numbers of runs by id."""
    until(lambda: all(len(retries_of(proj, each)) >= count for each, count in runs.items()), what=f"runs: {runs}")


def fail(proj: Proj, task_id: str, runs: int = 1) -> None:
    """Lets runs of ``gated`` fail."""
    proj.journal.rpush(f"fail {task_id}", *["now"] * runs)


def test_a_worker_that_is_killed(make_proj: MakeProj) -> None:
    """A chain goes on where it was when its worker is killed, while a step waits, or while one runs that acks late."""
    proj = make_proj(**TASKS)
    worker = proj.worker(concurrency=4)
    first, later, waits = (proj.send("gated").id for _ in range(3))
    for each in (later, waits):
        fail(proj, each)
        waiting_step(proj, each, 1)
    run_now(proj.app, later)
    proj.await_runs(1, id=first)
    proj.await_runs(1, id=later, retries=1)
    until(lambda: proj.server.client().hlen("unacked") == 2)
    worker.kill()
    give_back(proj)  # before another worker does, which would do it once more while the runs go on
    before = waiting_step(proj, waits, 1).message

    proj.worker(concurrency=4)
    await_runs(proj, {first: 2, later: 3})
    assert (retries_of(proj, first), retries_of(proj, later)) == ([0, 0], [0, 1, 1])
    assert waiting_step(proj, waits, 1).message == before
    run_now(proj.app, waits)
    proj.await_runs(2, id=waits)
    for each, retries, delay_s in ((first, 1, 240), (later, 2, 600), (waits, 2, 600)):
        with watched(proj, each) as counts:
            fail(proj, each)
            assert_steps([delay_of_step(proj, each, retries)], delay_s)
        assert set(counts) <= {0, 1}
    until(lambda: proj.server.client().hlen("unacked") == 0)
    assert [len(retries_of(proj, each)) for each in (first, later, waits)] == [2, 3, 2]


def test_a_chain_that_redis_did_not_take(make_proj: MakeProj) -> None:
    """A step that is longer than ``max_delay`` allows fails the task, and the error says why."""
    proj = make_proj(**TASKS, broker_transport_options={"max_delay": 300})
    proj.worker(concurrency=1)
    sent = proj.send("notify", delay_chain="4m,10m")
    steps_of(proj, sent.id, 1)
    error = error_of(sent)
    assert type(error).__name__ == "DelayTooLong"
    assert "max_delay" in str(error)
    assert Counter(retries_of(proj, sent.id)) == {0: 1, 1: 1}
