"""The options that make messages lighter: the same by all ways, and all that reads it."""

import json
from datetime import datetime
from typing import Any

import pytest
from celery import Celery, chain
from kombu import Connection

from celery_ext import Call, browse, cancel, get, install, reschedule, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message.lighter import DEFAULTS
from tests.integration.publish.test_fast_golden import Both, both  # noqa: F401  # a fixture
from tests.integration.publish.test_send_many_golden import ETA, NOW, record, sent
from tests.support.workers.harness import TRANSPORT, MakeProj

LIGHT = {"repr_maxsize": 20, "text_bodies": True, "omit_defaults": True}
LONG = {"payload": 'it\'s "x" ü ' * 100}
#: Options of calls, and whether their bodies stay text.
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "json": ({}, True),
    "yaml": ({"serializer": "yaml"}, True),
    "pickle": ({"serializer": "pickle"}, False),
    "compressed": ({"compression": "zlib"}, False),
    "own repr": ({"argsrepr": "x" * 50}, True),
    "a chain": ({"delay_chain": "1m"}, True),
}


def light_app(server: PrivateRedis, **conf: Any) -> Celery:
    app = Celery("light", broker=server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, broker_transport_options=LIGHT, **conf)
    app.now = lambda: NOW.astimezone(app.timezone)
    install(app, fast_publish=True)
    return app


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_to_publish_make_the_same(redis_server: PrivateRedis, both: Both, way: str) -> None:  # noqa: F811
    """``apply_async``, ``fast_publish`` and ``send_many`` write the same, and only text as text."""
    options, is_text = WAYS[way]
    app = light_app(redis_server)
    task = app.task(name="bulk.record", shared=False)(record)
    for eta in (ETA, None):
        call = Call((1,), LONG, eta=eta, task_id="one")
        both.compare(app, lambda: task.apply_async(**call._asdict(), **options), fast=way != "own repr")  # noqa: B023
        theirs = sent(redis_server, app, lambda: task.apply_async(**call._asdict(), **options))  # noqa: B023
        assert sent(redis_server, app, lambda: send_many(app, task, [call], **options)) == theirs  # noqa: B023
    message = json.loads(redis_server.client().lindex("celery", 0))
    assert message["headers"]["kwargsrepr"].endswith("...cut")
    assert len(message["headers"]["kwargsrepr"]) == len("...cut") + 20
    assert (message["properties"]["body_encoding"] == "utf-8") is is_text
    assert message["body"].startswith("[") is (is_text and way != "yaml")


def test_nothing_changes_without_the_options(redis_server: PrivateRedis) -> None:
    """By default a body is in base64, and nothing is cut."""
    client = redis_server.client()
    client.flushall()
    app = Celery("plain", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    app.send_task("some.task", kwargs=LONG)
    message = json.loads(client.lindex("celery", 0))
    assert message["properties"]["body_encoding"] == "base64"
    assert "cut" not in message["headers"]["kwargsrepr"]
    assert message["headers"].keys() >= DEFAULTS.keys()


@pytest.mark.both_layouts
def test_workers_run_light_messages(make_proj: MakeProj) -> None:
    """Workers run, retry and chain such tasks, and messages of both kinds stand in one queue."""
    proj = make_proj(broker_transport_options=LIGHT)
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
    redis_server.client().flushall()
    app = light_app(redis_server)
    del app.now
    ids = [app.send_task("some.task", (1, "ü"), LONG, countdown=600, protocol=2).id for _ in range(3)]
    found = list(browse(app, "celery"))
    assert sorted(task.id for task in found) == sorted(ids)
    for task in found:
        assert (task.args, task.kwargs) == ([1, "ü"], LONG)
        assert task.kwargsrepr.endswith("...cut")
    assert reschedule(app, ids[0], eta=datetime.now(ETA.tzinfo).replace(year=2100)) == "rescheduled"
    moved = get(app, ids[0])
    assert moved is not None
    assert moved.due.year == 2100
    assert moved.kwargs == LONG
    assert cancel(app, ids[1]) == "cancelled"


def test_plain_messages_and_protocol_1_are_light_too(redis_server: PrivateRedis) -> None:
    """A plain message and a task of protocol 1 are read as they were sent; the latter waits until its eta."""
    client = redis_server.client()
    client.flushall()
    with Connection(redis_server.url, transport=TRANSPORT, transport_options=LIGHT) as connection:
        queue = connection.SimpleQueue("plain")
        for content in ({"a": "ü"}, "text", b"\xff\x00"):
            queue.put(content)
            assert queue.get(timeout=30).payload == content
    app = light_app(redis_server, task_protocol=1)
    app.send_task("some.task", (1,), eta=ETA, task_id="one")
    found = get(app, "one")
    assert found is not None
    assert found.args == [1]
    assert reschedule(app, "one", eta=ETA.replace(year=2100)) == "rescheduled"
    assert [task.due.year for task in browse(app, "celery")] == [2100]
