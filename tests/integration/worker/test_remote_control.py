"""Remote control, events and Flower, with workers whose delayed tasks wait in Redis."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from celery_ext import run_now
from tests.support.conditions import stays, until
from tests.support.workers.events import captured
from tests.support.workers.flower import Flower
from tests.support.workers.harness import MakeProj, Proj, Worker

pytestmark = pytest.mark.wide


@pytest.mark.journey
def test_remote_control_with_tasks_that_wait_in_redis(proj: Proj) -> None:
    """Workers answer ping and inspect: waiting tasks are scheduled, running ones active, and neither is reserved."""
    workers = [proj.worker("-E", gossip=True, concurrency=1, wait=False) for _ in range(2)]
    for worker in workers:
        worker.ready()
    nodes, control = proj.await_answers(), proj.app.control
    assert "2 nodes online" in proj.celery("inspect", "ping", "-t", "30", "-d", ",".join(nodes))

    waiting = proj.send("record", "x", countdown=3600)
    running = proj.send("busy", 600, countdown=1)
    proj.await_runs(1)
    inspect = control.inspect(destination=nodes, timeout=30)
    assert {node: [task["request"]["id"] for task in tasks] for node, tasks in inspect.scheduled().items()} == {
        node: [waiting.id] for node in nodes
    }
    assert inspect.reserved() == {node: [] for node in nodes}
    assert [task["id"] for tasks in inspect.active().values() for task in tasks] == [running.id]
    assert {queue["name"] for queues in inspect.active_queues().values() for queue in queues} == {"celery"}


def test_a_worker_without_remote_control_delivers_as_ever(make_proj: MakeProj) -> None:
    """A worker whose remote control is off runs delayed tasks, also one that was revoked."""
    proj = make_proj(worker_enable_remote_control=False)
    worker = proj.worker(concurrency=1)
    soon, later = (proj.send("record", "x", countdown=countdown) for countdown in (1, 3600))
    for sent in (soon, later):
        proj.app.control.revoke(sent.id)
    assert soon.get(timeout=60) == "x"
    assert proj.delayed() == 1
    assert worker.stop() == 0


def test_events_of_a_delayed_task(proj: Proj) -> None:
    """A delayed task sends its events as any other, ``task-received`` when it is due; consumers can be added later.

    A queue that is added at run time gets its delayed tasks too, also those that waited before.
    """
    proj.app.conf.task_send_sent_event = True
    with captured(proj) as seen:
        worker = proj.worker("-E", concurrency=1)
        until(lambda: {"worker-online"} <= {event["type"] for event in seen})
        proj.await_answers()
        due = time.time() + 2
        delayed = proj.send("record", "x", countdown=2)
        sent_by = time.time()
        before = proj.send("record", "late queue", countdown=2, queue="late")
        [reply] = proj.app.control.add_consumer("late", reply=True, destination=[worker.node], timeout=30)
        assert "ok" in reply[worker.node]
        assert (delayed.get(timeout=60), before.get(timeout=60)) == ("x", "late queue")

        def of_delayed() -> dict[str, dict[str, Any]]:
            return {event["type"]: event for event in seen if event.get("uuid") == delayed.id}

        types = {"task-sent", "task-received", "task-started", "task-succeeded"}
        until(lambda: of_delayed().keys() == types)
    assert all(of_delayed()[kind]["timestamp"] >= due for kind in types - {"task-sent"})
    assert of_delayed()["task-sent"]["timestamp"] <= sent_by
    assert of_delayed()["task-received"]["eta"] == proj.runs(id=delayed.id)[0]["eta"] is not None
    assert len(proj.runs()) == 2
    assert worker.stop() == 0


@pytest.fixture(params=["redis", "delayq"])
def watched(request: pytest.FixtureRequest, make_proj: MakeProj) -> Iterator[tuple[Proj, Worker, Flower]]:
    """A worker and a Flower that watches it, with each way to name the broker."""
    proj = make_proj()
    if request.param == "delayq":
        url = proj.conf["broker_url"].replace("redis://", "delayq://")
        proj = make_proj(broker_url=url, broker_transport="")
    worker = proj.worker("-E", concurrency=1, wait=False)
    with closing(Flower(proj)) as flower:
        worker.ready()
        proj.await_answers()
        yield proj, worker, flower.ready()


def test_flower_shows_and_revokes_what_waits(watched: tuple[Proj, Worker, Flower]) -> None:
    """Flower shows waiting tasks among those scheduled, revokes them for good, and counts the queue as ever.

    In hash slots it cannot count: it asks for the lists of all queues and priorities in one transaction.
    """
    proj, worker, flower = watched
    waiting = proj.send("record", "to be revoked", countdown=3600)
    kept = proj.send("record", "kept", countdown=3601, kwargs={})
    workers = flower.api("GET", "workers", refresh="1", workername=worker.node)
    assert [task["request"]["id"] for task in workers[worker.node]["scheduled"]] == [waiting.id, kept.id]
    assert {task["request"]["hostname"] for task in workers[worker.node]["scheduled"]} == {"broker"}
    page = flower.request("GET", f"/worker/{worker.node}")
    assert all(text in page for text in (waiting.id, kept.id, "to be revoked", "proj.record"))

    assert flower.api("POST", f"task/revoke/{waiting.id}") == {"message": f"Revoked '{waiting.id}'"}
    until(lambda: proj.delayed() == 1)
    until(lambda: waiting.state == "REVOKED")
    until(lambda: flower.api("GET", "tasks", state="REVOKED").keys() == {waiting.id})

    outcomes = {waiting.id: "not_delayed", kept.id: "transferred"}
    assert run_now(proj.app, list(outcomes)) == outcomes
    assert kept.get(timeout=60) == "kept"
    stays(lambda: len(proj.runs()) == 1, 0.5)
    assert worker.stop() == 0
    proj.send("record", "ready")
    proj.send("record", "not yet", countdown=3600)
    assert flower.api("GET", "queues/length")["active_queues"] == [{"name": "celery", "messages": 1}]
    page = flower.request("GET", "/broker")
    assert '<tr id="celery">' in page
    assert f"redis://127.0.0.1:{proj.server.port}/0" in page
