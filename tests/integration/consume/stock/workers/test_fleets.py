"""Fleets of stock workers and ours: what each restores of the other, work side by side, and the way back to stock."""

import signal

import pytest

from tests.support.conditions import until, until_equal
from tests.support.workers.consumers import held, none_held, waiting
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.visibility import WORKERS_SWEEP, sweep, swept_after

OURS = pytest.mark.parametrize("consume", ["reliable"])


def _hold(proj: Proj, count: int) -> None:
    """Kills a worker that holds ``count`` messages, one of which runs."""
    for value in range(count):
        proj.send("gated_late", "gate", value)
    worker = proj.worker(pool="threads", concurrency=1)
    proj.await_runs(1)
    until(lambda: held(proj.server.client()) == count)
    worker.kill()
    assert held(proj.server.client()) == count


def _restored(proj: Proj, count: int) -> None:
    """Checks that a worker of another kind runs what was held, each task once more."""
    client = proj.server.client()
    proj.journal.set("gate", 1)
    proj.worker(pool="threads")

    def done() -> bool:
        sweep(proj)
        return len(proj.runs(name="gated_late")) == 1 + 2 * count

    until(done, 40)
    until(lambda: none_held(client))
    assert sorted(run["value"] for run in proj.runs(passed=None)[1:]) == [*range(count)]
    assert all(run["redelivered"] for run in proj.runs(passed=None)[1:])
    assert not waiting(client)


@OURS
@pytest.mark.nightly
def test_our_worker_restores_what_a_killed_stock_worker_held(make_proj: MakeProj) -> None:
    """After the visibility timeout ours runs the tasks of a killed stock worker, once each."""
    options = swept_after(2)
    _hold(make_proj(broker_transport="", include=["stock_tasks"], broker_transport_options=options), 4)
    _restored(make_proj(include=["stock_tasks"], broker_transport_options=options), 4)


@OURS
@pytest.mark.nightly
def test_a_stock_worker_restores_what_our_killed_worker_held(make_proj: MakeProj) -> None:
    """After the visibility timeout a stock worker runs the tasks of our killed worker, once each."""
    options = swept_after(2)
    _hold(make_proj(include=["stock_tasks"], broker_transport_options=options), 4)
    _restored(make_proj(broker_transport="", include=["stock_tasks"], broker_transport_options=options), 4)


@pytest.mark.journey
@OURS
def test_stock_workers_and_ours_share_a_queue(make_proj: MakeProj) -> None:
    """Of many tasks of one queue both kinds run some, together each once."""
    ours, stock = make_proj(), make_proj(broker_transport="")
    workers = [proj.worker(pool="threads", wait=False) for proj in (ours, stock)]
    for worker in workers:
        worker.ready()
    for value in range(200):
        (ours if value % 2 else stock).send("busy", 0.01, value)
    runs = ours.await_runs(200)
    client = ours.server.client()
    until(lambda: none_held(client))
    assert sorted(run["value"] for run in runs) == [*range(200)]
    assert {run["pid"] for run in runs} == {worker.process.pid for worker in workers}


@OURS
@pytest.mark.nightly
def test_stock_takes_over_when_our_workers_have_ended(make_proj: MakeProj) -> None:
    """After a warm shutdown nothing of ours is in Redis but the names of queues, and stock runs all that waits."""
    ours = make_proj(include=["stock_tasks"], broker_transport_options={"priority_steps": [0, 5]})
    client = ours.server.client()
    workers = [ours.worker("-Q", "celery,other", pool="prefork", concurrency=1, wait=False) for _ in range(2)]
    for worker in workers:
        worker.ready()
    for value in range(20):
        ours.send("gated_late", "gate", value, queue="other" if value % 3 == 0 else "celery", priority=value % 2 * 6)
    ours.await_runs(2)
    until(lambda: held(client) >= 8)
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
        until(lambda worker=worker: "Warm shutdown" in worker.log)
    ours.journal.set("gate", 1)
    for worker in workers:
        assert worker.process.wait(20) == 0
    assert none_held(client)
    until_equal(lambda: {key for key in client.keys("delayq:*") if ":counts" not in key} - {"{delayq}:queues"}, set())
    stock = make_proj(broker_transport="", include=["stock_tasks"], broker_transport_options={"priority_steps": [0, 5]})
    stock.worker("-Q", "celery,other", pool="threads")
    runs = stock.await_runs(40)
    assert sorted(run["passed"] for run in runs if "passed" in run) == [*range(20)]
    until(lambda: none_held(client))


@OURS
@pytest.mark.nightly
@pytest.mark.skipif(not WORKERS_SWEEP, reason="kombu before 5.7 sweeps every 100 s, whatever is set")
def test_a_task_longer_than_the_visibility_timeout_runs_once_beside_stock(make_proj: MakeProj, consume: str) -> None:
    """A stock worker that sweeps takes no task that our living worker runs; with stock's way of consuming it does."""
    options = swept_after(3)
    of_ours = {"consumer_ttl": 4} if consume == "reliable" else {}
    ours = make_proj(include=["stock_tasks"], broker_transport_options={**options, **of_ours})
    stock = make_proj(broker_transport="", include=["stock_tasks"], broker_transport_options=options)
    ours.worker("-Q", "long", pool="solo")
    ours.send("late_acked", 9, "x", queue="long")
    ours.await_runs(1)
    stock.worker("-Q", "long,other", pool="solo")
    stock.send("record", "other", queue="other")
    stock.await_runs(1, name="record")
    until(lambda: none_held(ours.server.client()), 40)
    assert len(ours.runs(name="late_acked")) == (1 if consume == "reliable" else 2)
