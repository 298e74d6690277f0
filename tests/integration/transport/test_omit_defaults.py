"""The transport option ``omit_defaults``: the same by all ways, and tasks that see no difference."""

import json
from typing import Any

import pytest
from celery import Celery, _state, chord, group
from celery.app.defaults import NAMESPACES

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message.lighter import DEFAULTS
from tests.integration.publish.test_fast_golden import ALL, OF_CELERY, Both, both, fast_app_of  # noqa: F401  # a fixture
from tests.integration.publish.test_send_many_golden import CASES, Case, record, sent
from tests.support.slots import plain_only
from tests.support.workers.harness import TRANSPORT, MakeProj

OMIT = {"omit_defaults": True}
#: What differs from task to task, and the arguments, which name the sender.
OWN = ("id", "root_id", "correlation_id", "properties", "args", "expires")


def omitting(server: PrivateRedis, case: Case) -> Celery:
    return fast_app_of(server, case._replace(conf={**case.conf, "broker_transport_options": OMIT}))


@pytest.mark.parametrize("name", ALL)
def test_all_ways_to_publish_make_the_same(redis_server: PrivateRedis, both: Both, name: str) -> None:  # noqa: F811
    """``apply_async``, ``fast_publish`` and ``send_many`` leave out the same, whatever the options of a call."""
    case = ALL[name]
    if "task_repr_maxlevels" in case.conf and "repr_maxlevels" not in NAMESPACES["task"]:
        pytest.skip("this Celery has no such setting")
    app = omitting(redis_server, case)
    task = app.task(name="bulk.record", shared=False, **case.of_task)(record)
    call = case.call._replace(task_id="ü\"' %s")
    given = {field: value for field, value in call._asdict().items() if value is not None}
    both.compare(app, lambda: task.apply_async(**given, **case.options), fast=name not in OF_CELERY)
    if name in CASES:
        theirs = sent(redis_server, app, lambda: task.apply_async(**given, **case.options))
        assert sent(redis_server, app, lambda: send_many(app, task, [call], **case.options)) == theirs


@pytest.mark.parametrize("parent", ["the parent", None])
def test_children_keep_their_parent(
    redis_server: PrivateRedis,
    both: Both,  # noqa: F811
    parent: str | None,
) -> None:
    """A task that another one calls has the header, by each way; others go without."""
    app = omitting(redis_server, Case())
    task = app.task(name="bulk.record", shared=False)(record)
    if parent:
        _state._task_stack.push(task)
        task.push_request(id=parent, root_id="the root", delivery_info={}, called_directly=False)
    try:
        both.compare(app, lambda: task.apply_async((1,), task_id="one"))
        theirs = json.loads(redis_server.client().lindex("celery", 0))
        send_many(app, task, [Call((1,), task_id="one")])
        ours = json.loads(redis_server.client().lindex("celery", 0))
    finally:
        if parent:
            task.pop_request()
            _state._task_stack.pop()
    assert theirs["headers"] == ours["headers"]
    assert DEFAULTS.keys() & ours["headers"].keys() == ({"parent_id"} if parent else set())


@plain_only("stock kombu reads lists in several slots at once")
@pytest.mark.parametrize("transport", [TRANSPORT, ""])
@pytest.mark.parametrize("text_bodies", [False, True])
def test_a_task_sees_no_difference(make_proj: MakeProj, transport: str, text_bodies: bool) -> None:
    """``task.request`` has the same values, all of them, in workers with this transport and in stock ones."""
    senders = {
        "light": make_proj(broker_transport_options={**OMIT, "text_bodies": text_bodies}),
        "stock": make_proj(broker_transport=""),
    }
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


@plain_only("stock kombu reads lists in several slots at once")
@pytest.mark.parametrize("transport", [TRANSPORT, ""])
def test_workflows_and_errors_go_on(make_proj: MakeProj, transport: str) -> None:
    """Chains, groups, chords, callbacks of errors and retries are those of Celery, on either transport."""
    proj = make_proj(broker_transport_options=OMIT)
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
