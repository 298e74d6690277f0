"""Messages of rows are those of Celery, field for field: each is compared with the one that Celery really sends."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from celery import Celery
from celery.app.defaults import NAMESPACES
from kombu import Exchange, Queue

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.options import WriteOptions
from tests.support.spark import apps
from tests.support.spark.golden_cases import CASES, ETA, NOW, NOW_MS, Case, struct, utc
from tests.support.spark.landing import Landed, published, sent
from tests.support.spark.making import TASK, batch_of, made_of, offers_of, seen, sole
from tests.support.workers.harness import TRANSPORT

TRANSPORTS = pytest.mark.parametrize("transport", ["redis", TRANSPORT])


def of_row(server: PrivateRedis, case: Case, settings: AppSettings | None = None) -> Landed:
    """Returns where the message of the row goes."""
    columns = case.columns or {"task": [case.options.get("task", TASK)]}
    made = made_of(batch_of(**columns), settings, base_ms=NOW_MS, **case.options)
    assert made.bad_rows == []
    return sent(server, made, WriteOptions.parse(case.options))


def compare(ours: Landed, theirs: Landed, *, stock: bool) -> None:
    """Fails the test unless both went to the same place and are the same to who gets them, but for their timestamps."""
    stamped = [message["properties"].pop("timestamp", None) for message in (ours.message, theirs.message)]
    assert (stamped[0] is None) == (ours.message["headers"]["eta"] is not None)  # an eta stands for itself
    assert seen(ours.message) == seen(theirs.message)
    assert [*ours.message] == [*theirs.message]
    if stock and ours.due_ms is not None:
        return  # stock kombu has no delayed messages
    assert ours.place == theirs.place
    assert ours.due_ms == (theirs.due_ms and pytest.approx(theirs.due_ms, abs=0.001))


def called(
    app: Celery, ours: Landed, call: Mapping[str, Any], send: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Returns what makes the call for a task of the same id."""
    app.now = lambda: NOW.astimezone(app.timezone)
    how = {"task_id": ours.message["headers"]["id"], **call}
    name = how.pop("name", TASK)
    return lambda connection: (send or app.send_task)(*(() if send else (name,)), connection=connection, **how)


@TRANSPORTS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_message_is_what_send_task_makes(redis_server: PrivateRedis, case: Case, transport: str) -> None:
    """Each column and each option makes the message that ``send_task`` makes of the same."""
    app = Celery("plain", set_as_current=False)
    ours = of_row(redis_server, case)
    theirs = published(redis_server, transport, app.amqp.queues.values(), called(app, ours, case.call))
    compare(ours, theirs, stock=transport == "redis")


TOPIC = Exchange("events", type="topic")
DIRECT = Exchange("jobs", type="direct")
QUEUES = [
    Queue("celery", Exchange("celery"), routing_key="celery"),
    Queue("media", TOPIC, routing_key="media.#"),
    Queue("web", TOPIC, routing_key="web.*"),
    Queue("feeds", DIRECT, routing_key="feed"),
]
RICH: Any = {"args": [[{"a": 1}]], "kwargs": struct(b=[1, 2], c="ü")}
RICH_CALL: Any = {"args": [{"a": 1}], "kwargs": {"b": [1, 2], "c": "ü"}}

#: Settings of an app, options of its task, and a case.
OF_APPS: dict[str, tuple[dict[str, Any], dict[str, Any], Case]] = {
    "no settings": ({}, {}, Case({})),
    "default queue": ({"task_default_queue": "main"}, {}, Case({})),
    "default exchange and routing key": (
        {"task_default_queue": "main", "task_default_exchange": "x", "task_default_routing_key": "k"},
        {},
        Case({}),
    ),
    "default topic exchange": (
        {"task_default_queue": "main", "task_default_exchange_type": "topic", "task_default_routing_key": "a.b"},
        {},
        Case({}),
    ),
    "routes in a dict": ({"task_routes": {TASK: {"queue": "routed", "priority": 4}}}, {}, Case({})),
    "routes by patterns": ({"task_routes": {"logic.*": "routed"}}, {}, Case({})),
    "routes in a list": ({"task_routes": [{"no.*": "x"}, {"logic.*": {"queue": "routed"}}]}, {}, Case({})),
    "routes by pairs": ({"task_routes": ([("no.*", "x"), ("logic.*", {"queue": "routed"})],)}, {}, Case({})),
    "routes by a function": ({"task_routes": (apps.route_by_name,)}, {}, Case({})),
    "routes by a function's name": ({"task_routes": "tests.support.spark.apps.route_by_name"}, {}, Case({})),
    "a queue in place of the routes": (
        {"task_routes": {"logic.*": {"queue": "routed"}}},
        {},
        Case({"queue": "mine"}, {"queue": ["mine"]}),
    ),
    "a route to a topic exchange": (
        {"task_queues": QUEUES, "task_routes": {"logic.*": {"queue": "media", "routing_key": "media.video.x"}}},
        {},
        Case({}),
    ),
    "a queue of a direct exchange": ({"task_queues": QUEUES}, {}, Case({"queue": "feeds"}, {"queue": ["feeds"]})),
    "a route to an exchange": (
        {"task_queues": QUEUES, "task_routes": {"logic.*": {"exchange": "jobs", "routing_key": "feed"}}},
        {},
        Case({}),
    ),
    "a delivery mode": ({"task_default_delivery_mode": 1}, {}, Case({})),
    **{
        f"serializer {each}": ({"task_serializer": each}, {}, Case(RICH_CALL, RICH))
        for each in ("json", "pickle", "yaml", "msgpack")
    },
    **{
        f"compression {each}": ({"task_compression": each}, {}, Case(RICH_CALL, RICH))
        for each in ("gzip", "bzip2", "lzma", "zlib")
    },
    "serializer and compression of the task": (
        {},
        {"serializer": "yaml", "compression": "gzip"},
        Case(RICH_CALL, RICH),
    ),
    "queue of the task": ({}, {"queue": "of_task"}, Case({})),
    "a queue in place of the task's": ({}, {"queue": "of_task"}, Case({"queue": "mine"}, {"queue": ["mine"]})),
    "priority of the task": ({}, {"priority": 3}, Case({})),
    "priority 0 in place of the task's": ({}, {"priority": 3}, Case({"priority": 0}, {"priority": [0]})),
    "default priority": ({"task_default_priority": 5}, {}, Case({})),
    "expires of the task": ({}, {"expires": 45}, Case({})),
    "expires in place of the task's": ({}, {"expires": 45}, Case({"expires": 5}, {"expires": [5]})),
    "limits of the task": ({}, {"time_limit": 40, "soft_time_limit": 30}, Case({})),
    "limits in place of the task's": ({}, {"time_limit": 40}, Case({"time_limit": 4}, {"time_limit": [4]})),
    "limits of the app": ({"task_time_limit": 70, "task_soft_time_limit": 60}, {}, Case({})),
    "ignore_result of the task": ({}, {"ignore_result": True}, Case({})),
    "ignore_result of the app": ({"task_ignore_result": True}, {}, Case({})),
    "ignore_result in place of the task's": (
        {},
        {"ignore_result": True},
        Case({"ignore_result": False}, {"ignore_result": [False]}),
    ),
    "a time zone": (
        {"timezone": "Europe/Berlin"},
        {},
        Case({"countdown": 60, "expires": 90}, {"countdown": [60], "expires": [90]}),
    ),
    "local time": (
        {"timezone": "America/New_York", "enable_utc": False},
        {},
        Case({"countdown": 60, "expires": ETA}, {"countdown": [60], "expires": utc(ETA)}),
    ),
    "levels of the repr": ({"task_repr_maxlevels": 1}, {}, Case(RICH_CALL, RICH)),
    "any levels of the repr": (
        {"task_repr_maxlevels": 0},
        {},
        Case({"kwargs": {"a": [[[[[1]]]]], "b": "x"}}, {"a": pa.array([[[[[[1]]]]]]), "b": ["x"]}),
    ),
    "levels of the repr of columns": (
        {"task_repr_maxlevels": 1},
        {},
        Case({"kwargs": {"b": [1], "c": "x"}}, {"b": [[1]], "c": ["x"]}),
    ),
    "delay levels": ({"delayq_levels": "1m 2m"}, {}, Case({"countdown": 120}, {"delay_level": [2]})),
}


@TRANSPORTS
@pytest.mark.filterwarnings(r"ignore:\s*The .* task attribute is deprecated")  # some tasks have them on purpose
@pytest.mark.parametrize(("conf", "of_task", "case"), OF_APPS.values(), ids=OF_APPS)
def test_a_message_is_what_apply_async_makes(
    redis_server: PrivateRedis, conf: dict[str, Any], of_task: dict[str, Any], case: Case, transport: str
) -> None:
    """The settings of an app and the options of its task count as they do for ``apply_async``."""
    if "task_repr_maxlevels" in conf and "repr_maxlevels" not in NAMESPACES["task"]:
        pytest.skip("this Celery has no such setting")
    app = apps.make("golden", **conf)
    task = apps.task(app, **of_task)
    ours = of_row(redis_server, case, apps.settings_of(app))
    theirs = published(
        redis_server, transport, app.amqp.queues.values(), called(app, ours, case.call, task.apply_async)
    )
    compare(ours, theirs, stock=transport == "redis")


def test_a_task_that_the_app_does_not_have_goes_by_its_routes(redis_server: PrivateRedis) -> None:
    """Routes and the default queue count for tasks of other code too, as with ``send_task``."""
    app = apps.make("golden", task_routes={"else.*": {"queue": "routed"}}, task_ignore_result=True)
    case = Case({"name": "else.where"}, {}, {"task": "else.where"})
    ours = of_row(redis_server, case, apps.settings_of(app))
    compare(ours, published(redis_server, TRANSPORT, (), called(app, ours, case.call)), stock=False)
    assert ours.place == "routed"


def test_rows_of_several_shapes_in_a_batch_make_each_its_own_message(redis_server: PrivateRedis) -> None:
    """Rows that differ in all that a message can differ in are made into the messages of each alone."""
    columns: dict[str, list[Any]] = {
        "task": [TASK, "b", "b", TASK],
        "queue": [None, "q1", "q2", "q1"],
        "priority": [None, 3, 9, 0],
        "expires": [None, 5.5, None, 7.0],
        "ignore_result": [None, True, False, None],
        "time_limit": [None, None, 3, 4],
        "n": [1, 2, 3, 4],
    }
    found = {offer.id: (queue, offer) for queue, offer in offers_of(made_of(batch_of(**columns), base_ms=NOW_MS))}
    for at in range(4):
        row = batch_of(**{name: pa.array(values).slice(at, 1) for name, values in columns.items()})
        queue, offer = sole(made_of(row, base_ms=NOW_MS))
        among_others, of_others = found.pop(offer.id)
        assert among_others == queue
        assert of_others.priority == offer.priority
        assert seen(json.loads(of_others.body)) == seen(json.loads(offer.body))
    assert not found
