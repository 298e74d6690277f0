"""Messages of rows are those of Celery, field for field: each is compared with the one that Celery really sends."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from celery import Celery
from celery.app.defaults import NAMESPACES
from kombu import Exchange, Queue

from celery_ext.private_redis import PrivateRedis
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.options import WriteOptions
from tests.integration.harness import TRANSPORT
from tests.spark.logic import apps
from tests.spark.logic.landing import Landed, published, sent
from tests.spark.logic.making import TASK, batch_of, made_of, offers_of, seen, sole

#: When the job began, and at the same time when Celery is called.
NOW = datetime(2044, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
NOW_MS = NOW.timestamp() * 1000
ETA = datetime(2044, 5, 6, 8, 0, 0, 654_321, tzinfo=UTC)
NOTHING: Mapping[str, Any] = MappingProxyType({})
TRANSPORTS = pytest.mark.parametrize("transport", ["redis", TRANSPORT])


class Case(NamedTuple):
    """A row, and the call that says the same."""

    call: Mapping[str, Any]
    columns: Mapping[str, Any] = NOTHING
    options: Mapping[str, str] = NOTHING


def utc(at: datetime) -> pa.Array:
    return pa.array([at], pa.timestamp("us", tz="UTC"))


def struct(**fields: Any) -> pa.Array:
    return pa.array([fields])


def mapping(**entries: Any) -> pa.Array:
    return pa.array([list(entries.items())], pa.map_(pa.string(), pa.array(list(entries.values())).type))


VALUES: dict[str, Any] = {
    "order": 7,
    "name": 'O\'Brien \\ "x" ü 😀',
    "none": None,
    "yes": True,
    "share": 0.1,
    "price": Decimal("12.50"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12, 30, 0, 5),
    "raw": b"\xff\x00",
    "text": b"abc",
    "rows": [{"a": [1, None]}, {"a": []}],
}

CASES = {
    "nothing": Case({}),
    "task": Case({"name": "other.task"}, {"task": ["other.task"]}),
    "args in an array": Case({"args": [1, 2]}, {"args": [[1, 2]]}),
    "args as JSON": Case({"args": [1, "a", None, {"b": [1.5]}]}, {"args": ['[1, "a", null, {"b": [1.5]}]']}),
    "args without any": Case({"args": []}, {"args": pa.array([[]], pa.list_(pa.int64()))}),
    "args NULL": Case({}, {"args": pa.array([None], pa.list_(pa.int64()))}),
    "kwargs in columns": Case({"kwargs": VALUES}, {name: [value] for name, value in VALUES.items()}),
    "kwargs in a struct": Case({"kwargs": VALUES}, {"kwargs": struct(**VALUES)}),
    "kwargs in a map": Case({"kwargs": {"a": 1, "b": 2}}, {"kwargs": mapping(a=1, b=2)}),
    "kwargs as JSON": Case({"kwargs": {"a": [1, {"b": None}]}}, {"kwargs": ['{"a": [1, {"b": null}]}']}),
    "kwargs NULL": Case({}, {"kwargs": pa.array([None], pa.string())}),
    "args and kwargs": Case({"args": ["x"], "kwargs": {"a": 1.0}}, {"args": [["x"]], "kwargs": ['{"a": 1.0}']}),
    "a long text": Case({"kwargs": {"a": "é" * 2000, "b": 1}}, {"a": ["é" * 2000], "b": [1]}),
    "UUIDs": Case(
        {"kwargs": {"a": UUID(int=5), "b": UUID(int=6)}},
        {"a": [str(UUID(int=5))], "b": [UUID(int=6).bytes]},
        {"uuid_columns": "a,b"},
    ),
    "eta": Case({"eta": ETA}, {"eta": utc(ETA)}),
    "eta on a second": Case({"eta": ETA.replace(microsecond=0)}, {"eta": utc(ETA.replace(microsecond=0))}),
    "eta without a zone": Case({"eta": ETA}, {"eta": pa.array([ETA.replace(tzinfo=None)], pa.timestamp("us"))}),
    "eta in the past": Case({"eta": NOW - timedelta(days=9999)}, {"eta": utc(NOW - timedelta(days=9999))}),
    "eta NULL": Case({}, {"eta": pa.array([None], pa.timestamp("us", tz="UTC"))}),
    "eta of no type": Case({}, {"eta": pa.nulls(1)}),
    "countdown": Case({"countdown": 90.5}, {"countdown": [90.5]}),
    "countdown as an option": Case({"countdown": 5400}, {}, {"countdown": "1h30m"}),
    "no countdown": Case({"countdown": 0}, {"countdown": [0]}),
    "no countdown as an option": Case({"countdown": 0}, {}, {"countdown": "0"}),
    "no countdown in place of the option": Case({"countdown": 0}, {"countdown": [0]}, {"countdown": "60"}),
    "a countdown that has passed": Case({"countdown": -5}, {"countdown": [-5]}),
    "delay_level": Case({"countdown": 10}, {"delay_level": [3]}),
    "delay_level as an option": Case({"countdown": 7200}, {}, {"delay_level": "99"}),
    "delay_level 0": Case({}, {"delay_level": [0]}, {"delay_level": "3"}),
    "expires in s": Case({"expires": 30}, {"expires": [30]}),
    "expires in parts of s": Case({"expires": 30.25}, {"expires": [30.25]}),
    "expires before now": Case({"expires": -30}, {"expires": [-30]}),
    "expires at a time": Case({"expires": ETA}, {"expires": utc(ETA)}),
    "expires at a past time": Case({"expires": NOW - timedelta(1)}, {"expires": utc(NOW - timedelta(1))}),
    "expires as an option": Case({"expires": 600}, {}, {"expires": "10m"}),
    "expires as an option with a time": Case({"expires": ETA}, {}, {"expires": ETA.isoformat()}),
    "expires NULL": Case({}, {"expires": pa.array([None], pa.float64())}),
    "eta and expires": Case({"eta": ETA, "expires": 7200}, {"eta": utc(ETA), "expires": [7200]}),
    "queue": Case({"queue": "orders"}, {"queue": ["orders"]}),
    "queue as an option": Case({"queue": "of orders %s"}, {}, {"queue": "of orders %s"}),
    "queue NULL": Case({"queue": "orders"}, {"queue": pa.array([None], pa.string())}, {"queue": "orders"}),
    **{f"priority {each}": Case({"priority": each}, {"priority": [each]}) for each in range(10)},
    "priority as an option": Case({"priority": 6}, {}, {"priority": "6"}),
    "headers in a map": Case({"headers": {"x": "1", "y": "%s"}}, {"headers": mapping(x="1", y="%s")}),
    "headers in a struct": Case({"headers": {"x": 1, "y": None}}, {"headers": struct(x=1, y=None)}),
    "headers as JSON": Case({"headers": {"x": {"y": [1]}}}, {"headers": ['{"x": {"y": [1]}}']}),
    "headers as an option": Case({"headers": {"x": [1, "ü"]}}, {}, {"headers": '{"x": [1, "ü"]}'}),
    "headers without any": Case({"headers": {}}, {"headers": ["{}"]}),
    "root_id": Case({"root_id": "r\"'%"}, {"root_id": ["r\"'%"]}),
    "root_id NULL": Case({}, {"root_id": pa.array([None], pa.string())}),
    "root_id empty": Case({"root_id": ""}, {"root_id": [""]}),
    "parent_id": Case({"parent_id": "p"}, {"parent_id": ["p"]}),
    "group_id": Case({"group_id": "g"}, {"group_id": ["g"]}),
    "task_id": Case({"task_id": "ü\"' %s"}, {"task_id": ["ü\"' %s"]}),
    "time_limit": Case({"time_limit": 30}, {"time_limit": [30]}),
    "soft_time_limit": Case({"soft_time_limit": 2.5}, {"soft_time_limit": [2.5]}),
    "limits as options": Case(
        {"time_limit": 60, "soft_time_limit": 50}, {}, {"time_limit": "1m", "soft_time_limit": "50s"}
    ),
    "ignore_result": Case({"ignore_result": True}, {"ignore_result": [True]}),
    "ignore_result not": Case({"ignore_result": False}, {"ignore_result": [False]}, {"ignore_result": "true"}),
    "ignore_result as an option": Case({"ignore_result": True}, {}, {"ignore_result": "true"}),
    "all at once": Case(
        {
            "args": [1],
            "kwargs": {"k": "v"},
            "eta": ETA,
            "expires": 99999,
            "queue": "q",
            "priority": 3,
            "headers": {"h": "1"},
            "root_id": "r",
            "parent_id": "p",
            "group_id": "g",
            "time_limit": 9,
            "soft_time_limit": 8,
            "ignore_result": True,
            "task_id": "t",
        },
        {
            "args": [[1]],
            "kwargs": struct(k="v"),
            "eta": utc(ETA),
            "expires": [99999],
            "queue": ["q"],
            "priority": [3],
            "headers": mapping(h="1"),
            "root_id": ["r"],
            "parent_id": ["p"],
            "group_id": ["g"],
            "time_limit": [9],
            "soft_time_limit": [8],
            "ignore_result": [True],
            "task_id": ["t"],
        },
    ),
}


def of_row(server: PrivateRedis, case: Case, settings: AppSettings | None = None) -> Landed:
    """Returns where the message of the row goes."""
    columns = case.columns or {"task": [case.options.get("task", TASK)]}
    made = made_of(batch_of(**columns), settings, base_ms=NOW_MS, **case.options)
    assert made.faults == []
    return sent(server, made, WriteOptions.parse(case.options))


def compare(ours: Landed, theirs: Landed, *, stock: bool) -> None:
    """Fails the test unless both went to the same place and are the same to who gets them."""
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
    "routes by patterns": ({"task_routes": {"proj.*": "routed"}}, {}, Case({})),
    "routes in a list": ({"task_routes": [{"no.*": "x"}, {"proj.*": {"queue": "routed"}}]}, {}, Case({})),
    "routes by pairs": ({"task_routes": ([("no.*", "x"), ("proj.*", {"queue": "routed"})],)}, {}, Case({})),
    "routes by a function": ({"task_routes": (apps.route_by_name,)}, {}, Case({})),
    "routes by a function's name": (
        {"task_routes": "tests.spark.logic.apps.route_by_name"},
        {},
        Case({}),
    ),
    "a queue in place of the routes": (
        {"task_routes": {"proj.*": {"queue": "routed"}}},
        {},
        Case({"queue": "mine"}, {"queue": ["mine"]}),
    ),
    "a route to a topic exchange": (
        {"task_queues": QUEUES, "task_routes": {"proj.*": {"queue": "media", "routing_key": "media.video.x"}}},
        {},
        Case({}),
    ),
    "a queue of a direct exchange": ({"task_queues": QUEUES}, {}, Case({"queue": "feeds"}, {"queue": ["feeds"]})),
    "a route to an exchange": (
        {"task_queues": QUEUES, "task_routes": {"proj.*": {"exchange": "jobs", "routing_key": "feed"}}},
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
