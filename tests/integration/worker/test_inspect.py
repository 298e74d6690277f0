"""What workers tell of tasks that wait in Redis."""

import json
import time
from datetime import datetime
from typing import Any

import pytest

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj, Worker

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]


def _shape(told: Any) -> Any:
    """Returns the keys of a reply, and of what is in it."""
    return {key: _shape(value) for key, value in told.items()} if isinstance(told, dict) else None


def _inspect(proj: Proj, worker: Worker) -> Any:
    return proj.app.control.inspect(destination=[worker.node], timeout=30)


@pytest.mark.journey
def test_waiting_tasks_have_the_shape_of_stock(make_proj: MakeProj) -> None:
    """Scheduled and query_task tell of a waiting task what stock tells of one that a worker holds, but its host."""
    told = []
    for transport in ({}, {"broker_transport": ""}):
        proj = make_proj(**transport)
        worker = proj.worker(concurrency=1)
        proj.await_answers()
        task = proj.send("record", "x", countdown=3600, priority=3)
        inspect = _inspect(proj, worker)
        [scheduled] = until(lambda inspect=inspect, worker=worker: inspect.scheduled()[worker.node])
        assert scheduled["request"]["id"] == task.id
        told.append(scheduled)
        if not transport:
            state, info = inspect.query_task(task.id, "unknown")[worker.node][task.id]
        proj.close()
        proj.server.client().flushall()
    ours, stock = told
    assert (state, info) == ("scheduled", {**ours["request"], "eta": ours["eta"]})
    assert ours["priority"] == stock["priority"]
    assert ours["request"]["hostname"] == "broker"
    assert _shape(ours) == _shape(stock)
    assert datetime.fromisoformat(ours["eta"]).timestamp() > time.time()
    assert stock["request"]["hostname"] == worker.node
    own = {"id": None, "hostname": None}
    assert {**ours["request"], **own} == {**stock["request"], **own}


def test_the_next_hundred_of_the_queues_that_a_worker_consumes(proj: Proj) -> None:
    """Scheduled tells of at most a hundred tasks, the next due of all queues of the worker first; query_task of any.

    The same is to be had from the command line, as text and as JSON.
    """
    worker = proj.worker("-Q", "celery,second", concurrency=1)
    proj.await_answers()
    for n in range(70):
        proj.send("record", 2 * n, countdown=100000 + 2 * n)
        proj.send("record", 2 * n + 1, countdown=100000 + 2 * n + 1, queue="second")
    elsewhere = proj.send("record", "elsewhere", countdown=500, queue="third")
    inspect = _inspect(proj, worker)
    told = inspect.scheduled()[worker.node]
    assert [task["request"]["args"] for task in told] == [[n] for n in range(100)]

    assert inspect.query_task("unknown")[worker.node] == {}
    ids = [task["request"]["id"] for task in told[:3]]
    found = inspect.query_task([*ids, "unknown", elsewhere.id])[worker.node]
    assert found.keys() == {*ids, elsewhere.id}
    assert found[elsewhere.id][1]["delivery_info"]["routing_key"] == "third"

    options = ("-t", "30", "-d", worker.node)
    assert json.loads(proj.celery("inspect", *options, "--json", "scheduled"))[worker.node] == told
    text = proj.celery("inspect", *options, "scheduled")
    assert all(word in text for word in (ids[0], "proj.record", "'hostname': 'broker'", told[0]["eta"]))
    assert ids[0] in proj.celery("inspect", *options, "query_task", ids[0])


def test_messages_that_are_hard_to_tell(proj: Proj, layout: str) -> None:
    """Scheduled decodes JSON only, tells of large arguments in short, and of plain messages and lost ones nothing."""
    worker = proj.worker(concurrency=1)
    proj.await_answers()
    proj.send("record", {1, 2}, countdown=10000, serializer="pickle")
    proj.send("record", "x" * 100_000, countdown=20000)
    proj.send("record", "packed", countdown=30000, compression="gzip")
    proj.app.conf.task_protocol = 1
    proj.send("record", "protocol 1", countdown=40000)
    proj.app.conf.task_protocol = 2
    with proj.connection() as connection:
        connection.Producer().publish({"no": "task"}, routing_key="celery", DelaySeconds=3000)
    if layout == "hash":  # where bodies are apart
        lost = proj.send("record", "lost", countdown=3600)
        assert proj.server.client().hdel("delayq:{celery}:bodies", lost.id) == 1

    pickled, large, packed, protocol_1 = (task["request"] for task in _inspect(proj, worker).scheduled()[worker.node])
    assert pickled["args"] == "({1, 2},)"
    assert large["args"].startswith("('xxx")
    assert len(large["args"]) < 5000
    assert packed["args"] == ["packed"]
    assert (protocol_1["name"], protocol_1["args"]) == ("proj.record", ["protocol 1"])


def test_a_queue_that_cannot_be_read_hides_no_other(proj: Proj) -> None:
    """A key in the way of one queue costs the reply that queue's tasks only, and the log says so."""
    worker = proj.worker("-Q", "celery,other", concurrency=1)
    proj.await_answers()
    proj.server.client().set(proj.keys("other")[0], "in the way")
    task = proj.send("record", "x", countdown=3600)
    assert [each["request"]["id"] for each in _inspect(proj, worker).scheduled()[worker.node]] == [task.id]
    assert "the waiting tasks of queue 'other' cannot be listed" in worker.log
    assert _inspect(proj, worker).query_task(task.id)[worker.node].keys() == {task.id}
    assert "Traceback" not in worker.log
