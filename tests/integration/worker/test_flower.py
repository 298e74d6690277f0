"""Flower, which knows nothing of kombu-delayq, beside workers whose tasks wait in Redis."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from celery_ext import run_now
from tests.support.conditions import stays, until
from tests.support.workers.flower import Flower
from tests.support.workers.harness import MakeProj, Proj, Worker


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
    waiting = proj.send("record", "to be revoked", countdown=60)
    kept = proj.send("record", "kept", countdown=61, kwargs={})
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
    assert kept.get(timeout=20) == "kept"
    stays(lambda: len(proj.runs()) == 1, 0.5)
    assert worker.stop() == 0
    proj.send("record", "ready")
    proj.send("record", "not yet", countdown=60)
    assert flower.api("GET", "queues/length")["active_queues"] == [{"name": "celery", "messages": 1}]
    page = flower.request("GET", "/broker")
    assert '<tr id="celery">' in page
    assert f"redis://127.0.0.1:{proj.server.port}/0" in page
