"""Fleets of stock workers and ours: work side by side, and the way back to stock."""

import signal

import pytest

from tests.support.conditions import until, until_equal
from tests.support.workers.consumers import held, none_held
from tests.support.workers.harness import MakeProj

OURS = pytest.mark.parametrize("consume", ["reliable"])


@pytest.mark.journey
@OURS
def test_stock_workers_and_ours_share_a_queue(make_proj: MakeProj) -> None:
    """Of many tasks of one queue both kinds run some, together each once."""
    tasks = {"include": ["stock_tasks"]}
    ours, stock = make_proj(**tasks), make_proj(broker_transport="", **tasks)
    workers = [proj.worker(pool="threads", wait=False) for proj in (ours, stock)]
    for worker in workers:
        worker.ready()
    for value in range(200):
        (ours if value % 2 else stock).send("gated", "gate", value)
    pids = {worker.process.pid for worker in workers}
    until(lambda: {run["pid"] for run in ours.runs()} == pids, what="both kinds have begun some")
    ours.journal.set("gate", 1)
    runs = ours.await_runs(200)
    client = ours.server.client()
    until(lambda: none_held(client))
    assert sorted(run["value"] for run in runs) == [*range(200)]


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
