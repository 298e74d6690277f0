"""What a worker does with running tasks when it loses its connections."""

import pytest

from tests.support.conditions import until
from tests.support.workers.consumers import none_held, waiting
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.visibility import sweep, swept_after


def _lose_connections(proj: Proj) -> None:
    """Kills all connections, of which Redis tells only the clients."""
    assert proj.server.client().client_kill_filter(_type="normal", skipme=True)


@pytest.mark.long
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_goes_on_after_it_lost_its_connections(make_proj: MakeProj, pool: str) -> None:
    """Each time that its connections are killed, the worker connects again and runs what comes then, once."""
    proj = make_proj()
    client = proj.server.client()
    worker = proj.worker(pool=pool)
    for value in range(3):
        _lose_connections(proj)
        proj.send("record", value)
        proj.await_runs(value + 1)
    until(lambda: none_held(client) and not waiting(client))
    assert [run["value"] for run in proj.runs()] == [0, 1, 2]
    proj.await_answers()
    assert worker.stop() == 0


@pytest.mark.long
def test_a_running_task_is_cancelled_when_its_worker_loses_its_connections(make_proj: MakeProj) -> None:
    """With ``worker_cancel_long_running_tasks_on_connection_loss`` the task is ended, and comes again."""
    proj = make_proj(
        include=["stock_tasks"],
        broker_transport_options=swept_after(3),
        worker_cancel_long_running_tasks_on_connection_loss=True,
    )
    client = proj.server.client()
    worker = proj.worker(concurrency=2)
    proj.send("gated_late", "gate", "x")
    proj.await_runs(1)
    _lose_connections(proj)
    until(lambda: "Connection to broker lost" in worker.log)

    def again() -> bool:
        sweep(proj)
        return len(proj.runs()) == 2

    until(again, 40, worker.log)
    proj.journal.set("gate", 1)
    runs = proj.await_runs(3)
    until(lambda: none_held(client) and not waiting(client))
    assert [run.get("passed") for run in runs] == [None, None, "x"]
    assert len({run["pid"] for run in runs}) == 2
    assert worker.alive()
