"""Late acknowledgement, redelivery and rejection of tasks that had a countdown."""

import time

import kombu
import pytest

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import in_hand

VISIBILITY_S = 4
#: What brings messages of a dead worker back after ``VISIBILITY_S``: kombu's sweep by the next worker, and by those
#: that live.
SWEPT = {"visibility_timeout": VISIBILITY_S}
SWEEPING = {**SWEPT, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def _all_acked(proj: Proj) -> bool:
    client = proj.server.client()
    return not (in_hand(client) or client.llen("celery") or proj.delayed())


def _redelivered_after_a_kill(proj: Proj) -> None:
    """Kills the worker that runs the task, and checks that the task runs once more, in another one."""
    due = time.time() + 1
    sent = proj.send("late_acked", 2, "x", countdown=1)
    [first] = proj.await_runs(1)
    for worker in proj.workers:
        if worker.process.pid == first["pid"]:
            worker.kill()
    if len(proj.workers) == 1:
        until(lambda: time.time() > first["at"] + VISIBILITY_S)
        proj.worker(pool="solo")  # kombu sweeps at the start
    assert sent.get(timeout=40) == "x"
    [first, second] = proj.runs()
    assert due <= first["at"] < second["at"]
    assert first["pid"] != second["pid"]
    assert (first["redelivered"], second["redelivered"]) == (False, True)
    assert until(lambda: _all_acked(proj))


@pytest.mark.skipif(kombu.VERSION < (5, 7), reason="kombu before 5.7 sweeps every 100 s, whatever is set")
def test_a_killed_workers_task_is_redelivered_by_the_sweep(make_proj: MakeProj) -> None:
    """With ``acks_late`` a living worker takes over the task of a killed one after the visibility timeout, once."""
    proj = make_proj(broker_transport_options=SWEEPING)
    for worker in [proj.worker(pool="solo", wait=False) for _ in range(2)]:
        worker.ready()
    _redelivered_after_a_kill(proj)


def test_rejected_and_lost_tasks_come_again_without_their_countdown(proj: Proj) -> None:
    """What is rejected with requeue, or ran in a pool process that died, comes again at once; other rejects do not."""
    proj.worker(concurrency=1)
    due = time.time() + 3
    sent = {
        "requeued": proj.send("reject_once", True, countdown=3),
        "dropped": proj.send("reject_once", False, countdown=3),
        "lost": proj.send("die_once", countdown=3),
    }
    proj.await_runs(5)
    until(lambda: _all_acked(proj))
    runs = {name: proj.runs(id=result.id) for name, result in sent.items()}
    assert {name: [run["redelivered"] for run in of_one] for name, of_one in runs.items()} == {
        "requeued": [False, True],
        "dropped": [False],
        "lost": [False, True],
    }
    for first, *more in runs.values():
        assert first["at"] >= due
        assert all(run["at"] < first["at"] + 3 for run in more)
    assert sent["lost"].get(timeout=30) is None
