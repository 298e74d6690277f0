"""Celery's own ways to revoke, for tasks that wait in Redis."""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import celery
import pytest
from celery.exceptions import TaskRevokedError

from celery_ext import cancel, run_now
from tests.support.conditions import stays, until
from tests.support.workers.events import captured
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.wide

ODD_ID = 'odd id: ü*?[x]\\ {1} "q" \'\x00\n'


def _revoke(proj: Proj, *tasks: Any, **options: Any) -> list[Any]:
    """Revokes tasks and waits for the workers. Returns their replies."""
    nodes = [worker.node for worker in proj.workers if worker.alive()]
    ids = [task.id for task in tasks]
    replies = proj.app.control.revoke(ids, reply=True, destination=nodes, timeout=60, **options)
    assert sorted(node for reply in replies for node in reply) == nodes
    return [each for reply in replies for each in reply.values()]


@pytest.mark.journey
def test_revoked_tasks_are_gone_for_good(proj: Proj) -> None:
    """Each way to revoke removes waiting tasks once, however many workers hear of it, and they never run.

    Their results are REVOKED, the event is sent once, and no worker has to remember the ids: all are restarted.
    """
    ids = [str(uuid4()), str(uuid4()), ODD_ID, str(uuid4()), str(uuid4())]
    with captured(proj) as seen:
        workers = [proj.worker("-E", concurrency=1, wait=False) for _ in range(2)]
        for worker in workers:
            worker.ready()
        nodes = proj.await_answers()
        until(lambda: len({event["hostname"] for event in seen}) == 2)
        tasks = [proj.send("record", n, countdown=600, task_id=task_id) for n, task_id in enumerate(ids)]
        kept = proj.send("record", "kept", countdown=600)

        tasks[0].revoke()
        for reply in _revoke(proj, *tasks[1:3], proj.app.AsyncResult("unknown")):
            assert reply["ok"].endswith("flagged as revoked")
        options = ("-t", "60", "-d", ",".join(nodes))
        proj.celery("control", *options, "revoke", ids[3])
        proj.celery("control", *options, "terminate", "KILL", ids[4])
        until(lambda: proj.delayed() == 1)
        until(lambda: [task.state for task in tasks] == ["REVOKED"] * 5)
        with pytest.raises(TaskRevokedError):
            tasks[0].get(timeout=30)
        assert kept.state == "PENDING"
        until(lambda: sum(event["type"] == "task-revoked" for event in seen) >= 5)
        assert [worker.stop() for worker in workers] == [0, 0]
    assert Counter(event["uuid"] for event in seen if event["type"] == "task-revoked") == dict.fromkeys(ids, 1)
    log = "".join(worker.log for worker in workers)
    assert all(log.count(f"Discarding revoked task: proj.record[{task_id}]") == 1 for task_id in ids)
    assert "Traceback" not in log

    proj.worker(concurrency=1)
    assert run_now(proj.app, [*ids, kept.id]) == {**dict.fromkeys(ids, "not_delayed"), kept.id: "transferred"}
    assert kept.get(timeout=60) == "kept"
    stays(lambda: len(proj.runs()) == 1, 1.0)


@pytest.mark.parametrize("pool", ["threads", "gevent", "solo"])
def test_revoke_and_inspect_in_every_pool(proj: Proj, pool: str) -> None:
    """In each pool a worker removes revoked tasks and tells of waiting ones, over the connections that it has."""
    worker = proj.worker(pool=pool)
    proj.await_answers()
    inspect = proj.app.control.inspect(destination=[worker.node], timeout=30)

    def revoke_one() -> None:
        task = proj.send("record", "x", countdown=600)
        [told] = inspect.scheduled()[worker.node]
        assert told["request"]["id"] == task.id
        assert inspect.query_task(task.id)[worker.node].keys() == {task.id}
        _revoke(proj, task)
        assert (proj.delayed(), task.state) == (0, "REVOKED")

    revoke_one()
    before = _sockets(worker.process.pid)
    for _ in range(10):
        revoke_one()
    assert _sockets(worker.process.pid) < before + 10, "no connection more with each"
    assert proj.send("record", "alive").get(timeout=30) == "alive"
    assert worker.stop() == 0
    assert "Traceback" not in worker.log


def _sockets(pid: int) -> int:
    count = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(each).startswith("socket:")
    return count


def test_terminate_ends_running_tasks_and_removes_waiting_ones(proj: Proj) -> None:
    """One revoke with terminate ends the task that runs and removes the one that waits; the reply is Celery's."""
    proj.worker("-E", concurrency=1)
    proj.await_answers()
    running, waiting = proj.send("busy", 600), proj.send("record", "x", countdown=600)
    proj.await_runs(1)
    [reply] = _revoke(proj, running, waiting, terminate=True, signal="SIGKILL")
    assert reply == {"ok": f"terminate: {running.id}"}
    until(lambda: (running.state, waiting.state) == ("REVOKED", "REVOKED"))
    assert proj.delayed() == 0
    assert proj.send("record", "next").get(timeout=60) == "next"


def test_revoking_a_running_step_refuses_the_next(make_proj: MakeProj) -> None:
    """A delay chain that is revoked while one of its steps runs takes no further step, and its result is REVOKED."""
    proj = make_proj(include=["chain_tasks"])
    proj.worker("-E", concurrency=1)
    proj.await_answers()
    task = proj.send("gated")
    proj.await_runs(1)
    _revoke(proj, task)
    proj.journal.rpush(f"fail {task.id}", 1)
    until(lambda: task.state == "REVOKED")
    stays(lambda: proj.delayed() == 0, 0.5)

    waiting = proj.send("gated")
    proj.journal.rpush(f"fail {waiting.id}", 1)
    until(lambda: proj.delayed() == 1, what="its next step waits")
    until(lambda: waiting.state == "RETRY")  # stored after the step waits
    _revoke(proj, waiting)
    assert (proj.delayed(), waiting.state) == (0, "REVOKED")

    running = proj.send("gated")
    proj.journal.rpush(f"fail {running.id}", 1)
    until(lambda: proj.delayed() == 1, what="its next step waits")
    run_now(proj.app, running.id)
    proj.await_runs(2, id=running.id)
    _revoke(proj, running)
    until(lambda: f"Ending the delay chain of revoked task: {running.id}" in proj.workers[0].log)
    proj.journal.rpush(f"fail {running.id}", 1)
    until(lambda: running.state == "REVOKED")


@pytest.mark.skipif(celery.__version__ < "5.7", reason="Celery has retry_on_worker_lost from 5.7 on")
def test_a_cancelled_chain_ends_with_a_lost_process(make_proj: MakeProj) -> None:
    """A chain that is cancelled while a step runs, which then loses its process, is REVOKED and does not run again."""
    lost = {"retry_on_worker_lost": True, "reject_on_worker_lost": True}
    proj = make_proj(include=["chain_tasks"], task_annotations={"proj.gated": lost})
    worker = proj.worker(concurrency=1)
    task = proj.send("gated")
    [run] = proj.await_runs(1)
    assert cancel(proj.app, task.id) == "not_delayed"
    os.kill(run["pid"], signal.SIGKILL)
    until(lambda: task.state == "REVOKED")
    until(lambda: proj.runs(id=task.id, told="revoked"))
    until(lambda: proj.server.client().hlen("unacked") == 0)
    stays(lambda: proj.delayed() == 0 and len(proj.runs(id=task.id, told=None)) == 1, 1.0)
    assert "Failed to retry" not in worker.log


@pytest.mark.timeout(400)  # Celery 5.7 itself looks at the result of each id
def test_very_many_ids_at_once(make_proj: MakeProj) -> None:
    """A revoke of 150,000 ids removes those that wait, and the worker works on meanwhile."""
    proj = make_proj(result_backend=None)
    worker = proj.worker(result_backend="cache+memory://", concurrency=1)
    proj.await_answers()
    waiting = [proj.send("record", n, countdown=300) for n in range(3)]
    ids = [f"unknown-{n}" for n in range(150_000)]
    for at, task in zip((0, 75_000, 150_002), waiting, strict=True):
        ids.insert(at, task.id)
    proj.app.control.revoke(ids)
    until(lambda: proj.delayed() == 2, 180, "the first one is removed")
    proj.send("record", "meanwhile")
    proj.await_runs(1)
    assert proj.delayed() > 0, "the worker did nothing else until the last id was searched"
    until(lambda: proj.delayed() == 0, 180)
    assert worker.alive()
    assert "were not searched" not in worker.log


def test_a_store_that_fails_costs_no_worker(proj: Proj) -> None:
    """When Redis answers with errors, the reply is Celery's, the log says what was not done, and a repeat does it."""
    worker = proj.worker(concurrency=1)
    proj.await_answers()
    waiting = proj.send("record", "x", countdown=600)
    client = proj.server.client()
    client.set("{delayq}:cancelled", "in the way")
    [reply] = _revoke(proj, waiting)
    assert reply["ok"].endswith("flagged as revoked")
    assert "1 of the revoked ids were not searched among the waiting tasks" in worker.log
    assert proj.delayed() == 1

    client.delete("{delayq}:cancelled")
    client.set(proj.keys("other")[0], "in the way")
    client.sadd("{delayq}:queues", "other")
    _revoke(proj, waiting)
    assert (proj.delayed(), waiting.state) == (0, "REVOKED")
    assert proj.send("record", "alive").get(timeout=30) == "alive"
    assert "Traceback" not in worker.log
