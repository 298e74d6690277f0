"""The option ``compact``: all that reads such messages, and tasks that see no difference."""

import json
from datetime import datetime
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from kombu import Connection

from celery_ext import cancel, get, install, reschedule, select
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message.outgoing import DEFAULTS
from tests.integration.publish.golden_cases import ETA, NOW
from tests.support.workers.harness import TRANSPORT, MakeProj

pytestmark = pytest.mark.wide

COMPACT = {"compact": True}
LONG = {"payload": 'it\'s "x" ü ' * 100}


#: What differs from task to task, and the arguments, which name the sender.
OWN = ("id", "root_id", "correlation_id", "properties", "args", "expires")


def compact_app(server: PrivateRedis, **conf: Any) -> Celery:
    app = Celery("light", broker=server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, broker_transport_options=COMPACT, **conf)
    app.now = lambda: NOW.astimezone(app.timezone)
    install(app, fast_publish=True)
    return app


def test_nothing_changes_without_the_options(redis_server: PrivateRedis) -> None:
    """By default a body is in base64, and all headers are there."""
    client = redis_server.client()
    app = Celery("plain", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    app.send_task("some.task", kwargs=LONG)
    message = json.loads(client.lindex("celery", 0))
    assert message["properties"]["body_encoding"] == "base64"
    assert message["headers"].keys() >= DEFAULTS.keys()


@pytest.mark.both_layouts
def test_workers_run_light_messages(make_proj: MakeProj) -> None:
    """Workers run, retry and chain such tasks, and messages of both kinds stand in one queue."""
    proj = make_proj(broker_transport_options=COMPACT)
    heavy = make_proj()
    results = [each.send("record", LONG["payload"], countdown=at) for each in (proj, heavy) for at in (None, 1)]
    proj.send("flaky", 1, 0.5)
    chain(proj.app.signature("proj.add", (1, 2)), proj.app.signature("proj.add", (3,)).set(countdown=1)).apply_async()
    proj.worker()
    proj.await_runs(4, name="record")
    assert {result.get(timeout=30) for result in results} == {LONG["payload"]}
    assert [run["value"] for run in proj.await_runs(2, name="add")] == [3, 6]
    proj.await_runs(2, name="flaky")


def test_readers_read_both(redis_server: PrivateRedis) -> None:
    """Tasks are found, shown with their arguments, moved to another time and cancelled."""
    app = compact_app(redis_server)
    del app.now
    ids = [app.send_task("some.task", (1, "ü"), LONG, countdown=600, protocol=2).id for _ in range(3)]
    found = list(select(app, queues="celery"))
    assert sorted(task.id for task in found) == sorted(ids)
    for task in found:
        assert (task.args, task.kwargs) == ([1, "ü"], LONG)
    assert reschedule(app, ids[0], eta=datetime.now(ETA.tzinfo).replace(year=2100)) == "rescheduled"
    moved = get(app, ids[0])
    assert moved is not None
    assert moved.due.year == 2100
    assert moved.kwargs == LONG
    assert cancel(app, ids[1]) == "cancelled"


def test_plain_messages_and_protocol_1_are_light_too(redis_server: PrivateRedis) -> None:
    """A plain message and a task of protocol 1 are read as they were sent; the latter waits until its eta."""
    with Connection(redis_server.url, transport=TRANSPORT, transport_options=COMPACT) as connection:
        queue = connection.SimpleQueue("plain")
        for content in ({"a": "ü"}, "text", b"\xff\x00"):
            queue.put(content)
            assert queue.get(timeout=30).payload == content
    app = compact_app(redis_server, task_protocol=1)
    app.send_task("some.task", (1,), eta=ETA, task_id="one")
    found = get(app, "one")
    assert found is not None
    assert found.args == [1]
    assert reschedule(app, "one", eta=ETA.replace(year=2100)) == "rescheduled"
    assert [task.due.year for task in select(app, queues="celery")] == [2100]


@pytest.mark.parametrize("transport", [TRANSPORT, ""])
def test_a_task_sees_no_difference(make_proj: MakeProj, transport: str) -> None:
    """``task.request`` has the same values, all of them, in workers with this transport and in stock ones."""
    senders = {"light": make_proj(broker_transport_options=COMPACT), "stock": make_proj(broker_transport="")}
    calls: list[dict[str, Any]] = [{}, {"shadow": "x", "expires": 600.0, "retries": 2}, {"headers": {"x": None}}]
    for sender, proj in senders.items():
        for number, options in enumerate(calls):
            proj.send("see", sender, number, argsrepr="(1,)", origin="me", reply_to="you", **options)
    light = senders["light"]
    messages = [json.loads(each) for each in light.server.client().lrange("celery", 0, -1)]
    assert sum(each["headers"].keys() >= DEFAULTS.keys() for each in messages) == len(calls)
    light.worker(pool="solo", broker_transport=transport)
    seen: dict[str, list[dict[str, Any]]] = {sender: [] for sender in senders}
    for run in light.await_runs(2 * len(calls), name="see"):
        request = run["request"]
        seen[request["args"][0]].append({name: value for name, value in request.items() if name not in OWN})
    assert seen["light"] == seen["stock"]
    assert len(seen["light"]) == len(calls)


@pytest.mark.parametrize("transport", [TRANSPORT, ""])
def test_workflows_and_errors_go_on(make_proj: MakeProj, transport: str) -> None:
    """Chains, groups, chords, callbacks of errors and retries are those of Celery, on either transport."""
    proj = make_proj(broker_transport_options=COMPACT)
    sign = proj.app.signature
    results = [
        (sign("proj.add", (1, 2)) | sign("proj.add", (3,))).apply_async(),
        chord(group(sign("proj.add", (number,)) for number in (1, 2)), sign("proj.add")).apply_async(),
        sign("proj.flaky", (2, 0.1)).apply_async(),
    ]
    sign("proj.flaky", (9, 0), link_error=sign("proj.record", ("failed",), immutable=True)).apply_async()
    proj.worker(broker_transport=transport)
    assert [result.get(timeout=30) for result in results] == [6, 3, 2]
    proj.await_runs(1, value="failed")
