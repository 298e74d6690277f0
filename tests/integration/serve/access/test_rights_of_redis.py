"""A server whose Redis user has no more rights than the page of rights says."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from celery import Celery
from starlette.testclient import TestClient

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import Action, Caller
from tests.support.servers.acl import PAGE, denials, url_of, users
from tests.support.store.consuming import message

__all__ = ["users"]

READING = ("+config|get", "+hget", "+hscan", "+info", "+lrange", "+mget", "+pttl", "+pubsub", "+zmscore")
RIGHTS = ("+config|get", "+exec", "+mget", "+multi", "+zmscore")


@pytest.fixture
def client(users: PrivateRedis) -> Iterator[TestClient]:
    """Calls a server with the rights of the user ``caretaker`` and those that the page names for servers."""
    users.client().execute_command("ACL", "SETUSER", "caretaker", *RIGHTS)
    app = Celery("shop", broker=url_of(users, "caretaker"), set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True, task_default_queue="celery.mails")
    ann = Caller("ann", frozenset(Action))
    made: Any = asgi(app, identify=lambda request: ann, allow_write=True)
    yield TestClient(made, base_url="http://localhost", headers={"Sec-Fetch-Site": "same-origin"})
    made.state.serve.broker.close()


def test_a_server_needs_few_rights(users: PrivateRedis, client: TestClient) -> None:
    """With what the page of rights says, tasks are enqueued, shown, changed and consumed."""
    assert f"`{' '.join(RIGHTS)}`" in PAGE.read_text(encoding="utf-8")
    eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    ids = []
    users.client().execute_command("ACL", "LOG", "RESET")
    for key in ("a", "b", "c"):
        task = {"task": "mails.send", "queue": "celery.mails", "eta": eta}
        sent = client.post("/v1/tasks", json=task, headers={"Idempotency-Key": key})
        assert sent.status_code == 201, (sent.text, denials(users))
        ids.append(sent.json()["id"])
    assert client.post("/v1/tasks:batch", json={"tasks": [{**task, "task": "mails.later"}]}).status_code < 300
    assert client.patch(f"/v1/tasks/{ids[0]}", json={"countdown": 60}).json()["outcome"] == "rescheduled"
    assert client.post(f"/v1/tasks/{ids[0]}:run").json()["outcome"] == "transferred"
    assert client.delete(f"/v1/tasks/{ids[1]}").json()["outcome"] == "cancelled"
    bulk = client.post("/v1/bulk", json={"action": "cancel", "filter": {"queue": "celery.mails"}}).json()
    assert bulk["matched"] == 2
    assert client.post(f"/v1/bulk/{bulk['id']}:start", json={"confirm": bulk["matched"]}).status_code == 200
    queue = quote("celery.mails")
    for _ in range(3):
        client.post("/v1/tasks", json={"task": "mails.send", "queue": "celery.mails"})
    lease = client.post("/v1/queues/celery.mails:take?max=3").json()["lease"]["id"]
    for verb, body in (
        ("release", {"tags": ["1"]}),
        ("release", {"tags": ["2"], "delay": 60}),
        ("extend", {"seconds": 30}),
        ("ack", {"tags": ["3"]}),
    ):
        assert client.post(f"/v1/leases/{lease}:{verb}", json=body).status_code == 200
    assert client.post("/v1/queues/celery.mails:take?max=9&wait=1s").json()["messages"]
    assert client.post("/v1/queues/celery.mails:take?wait=0.2s").json()["lease"] is None
    pages = ("/", f"/queues/{queue}", f"/tasks/{ids[2]}", "/dead-letters", "/metrics", "/healthz")
    calls = ("queues", f"queues/{queue}", f"queues/{queue}/histogram", f"tasks?queue={queue}", "dead-letters")
    found = {path: client.get(path).status_code for path in (*pages, *(f"/v1/{call}" for call in calls))}
    assert {path: status for path, status in found.items() if status not in (200, 404)} == {}
    assert denials(users) == []


def test_a_server_that_only_reads_needs_the_rights_of_status(users: PrivateRedis) -> None:
    """With the rights of the user ``status`` and a few more, all pages and figures are shown."""
    users.client().execute_command("ACL", "SETUSER", "status", *READING)
    users.client().sadd("_kombu.binding.mails", "mails\x06\x16\x06\x16celery.later")
    users.client().execute_command("ACL", "LOG", "RESET")
    assert f"`status`, and `{' '.join(READING)}`" in PAGE.read_text(encoding="utf-8")
    app = Celery("shop", broker=url_of(users, "status"), set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True, task_default_queue="celery.mails")
    reader = TestClient(asgi(app, anonymous=True), base_url="http://localhost")
    admin = users.client()
    for name in ("celery.mails", "celery.dead"):
        admin.lpush(name, json.dumps(message(1)))
    admin.sadd("{delayq}:dead_letters", "celery.dead")
    admin.hset("{delayq}:periodic", "tick", json.dumps({"task": "t", "schedule": "60 s", "queues": ["celery.mails"]}))
    paths = [path for path in map(_filled, reader.app.routes) if path is not None]  # type: ignore[attr-defined]
    assert len(paths) > 20
    found = {path: reader.get(path, follow_redirects=False).status_code for path in paths}
    assert {path: status for path, status in found.items() if status >= 500 or status == 403} == {}
    assert denials(users) == []
    queues = reader.get("/v1/queues").json()["queues"]
    assert {row["queue"]: row.get("error") for row in queues} == {"celery.later": None, "celery.mails": None}
    assert denials(users) == []


def _filled(route: Any) -> str | None:
    """Returns a path of a route that only reads; None for one that does not, asks workers, or needs a query."""
    if "GET" not in (route.methods or ()) or route.path in ("/running", "/queues"):
        return None
    named = {"queue": "celery.dead" if "letters" in route.path else "celery.mails"}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda part: quote(named.get(part[1], "i")), route.path)


def test_a_denied_right_is_said(users: PrivateRedis) -> None:
    """What the server's user may not do is no outage: 502, also where a script is denied a command."""
    users.client().execute_command("ACL", "SETUSER", "status", *READING)
    app = Celery("shop", broker=url_of(users, "status"), set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True, task_default_queue="celery.mails")
    reader = TestClient(asgi(app, anonymous=True), base_url="http://localhost")
    assert reader.get("/v1/tasks/i").status_code == 404
    for right in ("-hget", "-eval -evalsha"):
        users.client().execute_command("ACL", "SETUSER", "status", *right.split())
        users.client().zadd("delayq:{celery.mails}:due", {"i": 1})
        users.client().hset("delayq:{celery.mails}:bodies", "i", "{}")
        users.client().sadd("{delayq}:queues", "celery.mails")
        answer = reader.get("/v1/tasks/i")
        assert (answer.status_code, answer.json()["type"]) == (502, "urn:delayq:problem:broker-refuses"), answer.text
