"""Every pool of workers, and where the transfer worker runs."""

import time

import pytest

from tests.support.conditions import stays, until
from tests.support.workers.harness import Proj, Worker


def _leader_pid(proj: Proj) -> int | None:
    lease = proj.server.client().get("{delayq}:transfer")
    return int(lease.split(":")[1]) if lease else None


@pytest.mark.journey
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_delayed_tasks_run_once_in_every_pool(proj: Proj, pool: str) -> None:
    """In each pool tasks with a countdown run once and not early, those without at once, and the worker stops clean."""
    worker = proj.worker(pool=pool)
    due = time.time() + 1.5
    for n in range(20):
        proj.send("record", n, countdown=1.5)
    proj.send("record", "now")
    proj.send("flaky", 1, kwargs={"countdown": 0.5})
    runs = proj.await_runs(23)
    values = [run["value"] for run in runs if run["name"] == "record"]
    assert sorted(map(str, values)) == sorted([*map(str, range(20)), "now"])
    assert all(run["at"] >= due for run in runs if isinstance(run.get("value"), int))
    until(lambda: proj.server.client().hlen("unacked") == 0)
    assert _leader_pid(proj) == worker.process.pid
    assert worker.stop() == 0
    assert len(proj.runs()) == 23
    assert proj.server.client().get("{delayq}:transfer") is None


@pytest.mark.nightly
def test_transfer_goes_on_beside_a_long_solo_task(proj: Proj) -> None:
    """A worker with ``transfer=False`` runs no transfer worker; a solo worker in a long task does it for others."""
    other = proj.worker("-Q", "other", pool="solo", broker_transport_options={"transfer": False})
    proj.send("record", "first", queue="other", countdown=1)
    stays(lambda: proj.delayed("other") == 1 and _leader_pid(proj) is None, 2)
    assert proj.runs() == []

    solo = proj.worker("-Q", "long", pool="solo")
    [first] = proj.await_runs(1)
    assert first["pid"] == other.process.pid
    long = proj.send("busy", 5, queue="long")
    proj.await_runs(1, name="busy")
    due = time.time() + 1
    proj.send("record", "second", queue="other", countdown=1)
    proj.send("record", "third", queue="long", countdown=1)
    [second] = proj.await_runs(1, value="second")
    assert second["at"] >= due
    assert _leader_pid(proj) == solo.process.pid
    # The solo worker's own message is ready, and runs after the long task.
    until(lambda: proj.delayed("long") == 0)
    assert not long.ready()
    [third] = proj.await_runs(1, value="third")
    assert long.get(timeout=30) is None
    assert third["pid"] == solo.process.pid


def _threads_in_children(proj: Proj, worker: Worker) -> set[str]:
    runs = proj.runs(name="threads")
    assert all(run["pid"] != worker.process.pid for run in runs)
    return {name for run in runs for name in run["threads"]}


def test_pool_processes_forked_later_run_no_transfer_worker(proj: Proj) -> None:
    """With ``--max-tasks-per-child`` and ``--autoscale`` delivery goes on, by the worker's main process alone."""
    worker = proj.worker("--autoscale=3,1", "--max-tasks-per-child=1")
    for _ in range(6):
        proj.send("busy", 0.5)
    due = time.time() + 1
    for _ in range(3):
        proj.send("threads", countdown=1)
    runs = proj.await_runs(9)
    assert len({run["pid"] for run in runs}) == 9
    assert "Scaling up" in worker.log
    assert all(run["at"] >= due for run in proj.runs(name="threads"))
    assert "delayq-transfer" not in _threads_in_children(proj, worker)
    assert _leader_pid(proj) == worker.process.pid
    until(lambda: proj.server.client().pubsub_numsub("delayq:wake:0") == [("delayq:wake:0", 1)])
    again = proj.send("record", "again", countdown=1)
    assert again.get(timeout=20) == "again"
    assert len(proj.runs()) == 10
