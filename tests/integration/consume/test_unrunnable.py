"""What a worker cannot run goes back for those that can, and becomes a dead letter when none could for long enough."""

import base64
import json
from typing import Any

import pytest
from celery.exceptions import NotRegistered

from celery_ext.dead_letters import DeadLetters
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj

LETTERS = "dead_letters"


@pytest.fixture
def deploy(make_proj: MakeProj) -> Proj:
    """The app while it is deployed: only workers with ``imports`` know the task ``later``."""
    return make_proj()


def letters(proj: Proj) -> list[dict[str, Any]]:
    """Returns the messages of the dead letters, as JSON has them."""
    return [json.loads(raw) for raw in proj.server.client().lrange(LETTERS, 0, -1)]


def push(proj: Proj, message: dict[str, Any]) -> None:
    """Puts a message into the queue, as any program may."""
    info = {"exchange": "", "routing_key": "celery"}
    whole = {
        "body": base64.b64encode(b"[[1], {}, {}]").decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"id": "i", "task": "proj.record", "lang": "py"},
        "properties": {"delivery_tag": "t", "delivery_info": info, "body_encoding": "base64", "correlation_id": "i"},
        **message,
    }
    proj.server.client().lpush("celery", json.dumps(whole))


@pytest.mark.journey
@pytest.mark.parametrize("pool", ["threads", "prefork", "solo"])
def test_a_task_that_one_worker_does_not_know_runs_in_another(deploy: Proj, pool: str) -> None:
    """Each of many unknown tasks runs once, in the worker that knows it; the worker that does not goes on meanwhile."""
    behind = deploy.worker(pool=pool)
    sent = [deploy.send("later", value) for value in range(6)]
    deploy.send("record", "known")
    deploy.await_runs(1, name="record")
    until(lambda: "does not know the task 'proj.later'" in behind.log)
    assert behind.log.count("does not know the task 'proj.later'") == 1, "said once a minute"
    assert not letters(deploy)
    deploy.worker(pool=pool, imports=["later_tasks"])
    deploy.await_runs(6, name="later")
    assert sorted(run["value"] for run in deploy.runs(name="later")) == [*range(6)]
    assert [result.get(timeout=30) for result in sent] == [*range(6)]
    until(lambda: deploy.server.client().hlen("unacked") == 0)


def test_a_task_that_no_worker_knows_becomes_a_dead_letter(make_proj: MakeProj) -> None:
    """After ``unknown_ttl``, as it was sent, with a result that has failed; replayed, it runs where it is known."""
    proj = make_proj(broker_transport_options={"unknown_ttl": 1.5})
    proj.worker(pool="threads")
    sent = proj.send("later", 7)
    [letter] = until(lambda: letters(proj))
    assert letter["properties"]["dead_letter"]["reason"] == "unknown task"
    assert "unrunnable" not in letter["properties"]
    assert letter["headers"]["id"] == sent.id
    with pytest.raises(NotRegistered):
        sent.get(timeout=30)
    until(lambda: proj.server.client().hlen("unacked") == 0)
    proj.worker(pool="threads", imports=["later_tasks"])
    proj.workers[0].stop()
    DeadLetters(proj.app).replay(queue=LETTERS)
    assert proj.await_runs(1, name="later")[0]["value"] == 7


@pytest.mark.parametrize(
    "message",
    [
        {"content-type": "application/x-python-serialize", "content-encoding": "binary"},
        {"headers": {}, "body": base64.b64encode(b"{").decode()},
        {"headers": {}},
    ],
    ids=["not accepted", "no JSON", "no task"],
)
def test_what_no_worker_can_read_becomes_a_dead_letter(make_proj: MakeProj, message: dict[str, Any]) -> None:
    """A content type that is not accepted, a body that cannot be decoded, and a message without a task."""
    proj = make_proj(broker_transport_options={"unknown_ttl": 1})
    proj.worker(pool="threads")
    push(proj, message)
    [letter] = until(lambda: letters(proj))
    assert letter["properties"]["dead_letter"]["reason"] == "cannot be read"
    assert letter["body"] == message.get("body", base64.b64encode(b"[[1], {}, {}]").decode())
    proj.send("record", "known")
    proj.await_runs(1, name="record")


def test_nobody_is_busy_with_what_nobody_knows(deploy: Proj) -> None:
    """A worker sees an unknown message a few times in as many seconds, and runs all others as they come."""
    worker = deploy.worker(pool="threads")
    for value in range(50):
        deploy.send("later", value)
    until(lambda: deploy.delayed() == 50)
    for value in range(20):
        deploy.send("record", value)
    deploy.await_runs(20, name="record")
    client = deploy.server.client()
    before = client.info("commandstats").get("cmdstat_zadd", {"calls": 0})["calls"]
    stays(lambda: worker.alive(), 3)
    assert client.info("commandstats")["cmdstat_zadd"]["calls"] - before < 50 * 8


def test_without_a_time_they_are_gone_as_with_celery(make_proj: MakeProj) -> None:
    """With ``unknown_ttl=None``, Celery's own way."""
    proj = make_proj(broker_transport_options={"unknown_ttl": None})
    proj.worker(pool="threads")
    with pytest.raises(NotRegistered):
        proj.send("later").get(timeout=30)
    assert not letters(proj)
    assert proj.delayed() == 0
