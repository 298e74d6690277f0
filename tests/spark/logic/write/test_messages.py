"""Batches of rows become messages: all of a batch, whatever it is made of, and such as workers run."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pyarrow as pa
import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import task_id
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.templates import Templates
from kombu_delayq.options import Options
from tests.support.spark import apps
from tests.support.spark.landing import landed, open_store, send
from tests.support.spark.making import (
    TASK,
    arguments_in,
    batch_of,
    builder_of,
    ids_of,
    kwargs_of,
    made_of,
    offers_of,
    plan_of,
    sole,
)
from tests.support.workers.harness import TRANSPORT, Proj

SECRET = "tops3cret"


def test_a_batch_without_rows_makes_nothing() -> None:
    """Spark hands over empty batches too."""
    made = made_of(batch_of(n=[1]).slice(0, 0))
    assert made == ({}, [], [])


def test_a_part_of_a_batch_makes_what_the_whole_makes() -> None:
    """Arrow arrays that begin within their buffers are read from where they begin."""
    at = datetime(2044, 1, 1, tzinfo=UTC)
    batch = batch_of(
        n=list(range(10)),
        t=[None if n % 3 else str(n) for n in range(10)],
        eta=pa.array([at + timedelta(n) for n in range(10)], pa.timestamp("us", "UTC")),
        rows=[[{"a": n}] for n in range(10)],
        flag=[n % 2 == 0 for n in range(10)],
    )
    builder = builder_of(batch.schema, base_ms=0)
    whole = offers_of(builder.build(batch))
    parts = [offer for start in range(0, 10, 3) for offer in offers_of(builder.build(batch.slice(start, 3)))]
    assert parts == whole


@pytest.mark.parametrize("options", [{}, {"spread": "10m"}, {"id_columns": "n"}, {"id_columns": "n", "spread": "10m"}])
@pytest.mark.parametrize("delay", [None, "eta", "countdown"])
def test_parts_of_a_batch_make_what_the_whole_makes(
    delay: str | None, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts have the messages and the faults of the whole batch, those that are due first in the first part."""
    monkeypatch.setattr(
        "celery_ext.spark.write.batch.stamp_text", lambda: ', "timestamp": 1'
    )  # the second may change in between
    start = datetime(2044, 1, 1, tzinfo=UTC)
    minutes = [None if n % 5 == 0 else n * 37 % 50 for n in range(50)]
    delays = {
        None: {},
        "eta": {"eta": pa.array([n and start + timedelta(minutes=n) for n in minutes], pa.timestamp("us", "UTC"))},
        "countdown": {"countdown": [inf if at == 3 else n and n * 60.0 for at, n in enumerate(minutes)]},
    }
    batch = batch_of(
        n=list(range(50)), rows=[[{"a": n}] for n in range(50)], priority=[n % 11 for n in range(50)], **delays[delay]
    )
    builder = builder_of(batch.schema, base_ms=2e12, **options)
    whole, parts = builder.build(batch), list(builder.parts(batch, 8))
    assert len(parts) == 7
    offers = [offer for part in parts for offer in part.offers["celery"]]
    assert sorted(offers) == sorted(whole.offers["celery"])
    dues = [float(offer.due or 0) for offer in offers]
    assert dues == sorted(dues)
    assert sorted(row for part in parts for row in part.bad_rows) == sorted(whole.bad_rows)
    assert len(whole.bad_rows) == 4 + (delay == "countdown")


def test_what_cancels_is_not_cut() -> None:
    """A batch that may cancel tasks is one part, because each search for ids costs Redis the same."""
    batch = batch_of(op=["cancel"] * 9, n=list(range(9)))
    [made] = builder_of(batch.schema, id_columns="n").parts(batch, 2)
    assert len(made.cancelled) == 9


def test_reserved_columns_in_any_case_make_the_same_messages() -> None:
    """``ETA`` is ``eta``: due time, queue, id and arguments do not depend on the case of the names."""
    at = pa.array([datetime(2044, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    usual = {"eta": at, "priority": [7], "queue": ["orders"], "headers": ['{"x": 1}'], "n": [1]}
    upper = {name.upper() if name != "n" else name: column for name, column in usual.items()}
    for options in ({}, {"id_columns": "n,eta"}):
        found, expected = (offers_of(made_of(batch_of(**each), base_ms=0, **options)) for each in (upper, usual))
        assert found == expected


def test_offers_say_what_their_messages_say() -> None:
    """Id, due time and priority, by which the store keeps a message, are those in it, and the queue is its own."""
    at = datetime(2044, 1, 1, 2, 3, 4, 567_891, tzinfo=UTC)
    batch = batch_of(eta=pa.array([at], pa.timestamp("us", "UTC")), priority=[7], queue=["orders"])
    queue, offer = sole(made_of(batch))
    message = json.loads(offer.body)
    assert queue == message["properties"]["delivery_info"]["routing_key"] == "orders"
    assert offer.id == message["headers"]["id"] == message["properties"]["correlation_id"]
    assert offer.priority == message["properties"]["priority"] == 7
    assert float(offer.due) == at.timestamp() * 1000


@pytest.mark.parametrize("columns", [{}, {"args": [[1]]}, {"parent_id": ["p"]}, {"kwargs": ['{"a": "\\"\\u00fc"}']}])
def test_compact_messages_say_what_others_say(columns: dict[str, Any]) -> None:
    """With the transport option ``compact`` a body is text, and a worker gets the same arguments and headers."""
    batch = batch_of(**({"n": [7], "text": ['"ü\\']} if "kwargs" not in columns else {}), **columns)
    builder = builder_of(batch.schema)
    [usual] = builder.build(batch).offers["celery"]
    builder.templates = Templates(AppSettings(), Options(compact=True))
    [compact] = builder.build(batch).offers["celery"]
    message, expected = json.loads(compact.body), json.loads(usual.body)
    args, kwargs, embed = json.loads(message["body"])
    assert [args, kwargs] == arguments_in(expected)[:2]
    assert embed == {}
    assert message["headers"].items() <= expected["headers"].items()
    assert ("parent_id" in message["headers"]) == ("parent_id" in columns)
    assert len(compact.body) < 0.8 * len(usual.body)


def test_rows_go_to_queues_in_their_order() -> None:
    """The messages of each queue keep the order of the rows."""
    batch = batch_of(n=list(range(9)), queue=["a", "b", None] * 3)
    made = made_of(batch, id_columns="n")
    found = {queue: [offer.id for offer in offers] for queue, offers in made.offers.items()}
    assert found == {
        queue: [task_id(TASK, n) for n in range(start, 9, 3)] for start, queue in enumerate(("a", "b", "celery"))
    }


def test_rows_may_cancel_tasks() -> None:
    """A row with the op cancel is no message but an id, made as that of the row that has enqueued the task."""
    columns: dict[str, Any] = {"op": ["enqueue", "cancel", None, "cancel"], "n": [1, 1, 2, 3], "amount": [5, 0, 5, 0]}
    made = made_of(batch_of(**columns), id_columns="n")
    assert ids_of(made) == [task_id(TASK, 1), task_id(TASK, 2)]
    assert made.cancelled == [task_id(TASK, 1), task_id(TASK, 3)]


def test_a_cancelling_row_with_an_id_needs_no_task() -> None:
    """Whoever cancels by task_id need not know which task it is."""
    batch = batch_of(op=["cancel", "cancel"], task_id=["mine", None], task=pa.array([None, None], pa.string()))
    made = made_of(batch, task=None)
    assert made.cancelled == ["mine"]
    assert [fault.partition(" (row ")[0] for fault, _ in made.bad_rows] == ["column task, value None: names no task"]


def test_a_cancelling_row_that_is_bad_cancels_nothing() -> None:
    """Other columns of a cancelling row are looked at as well, and its fault is told."""
    made = made_of(batch_of(op=["cancel"], n=[1], priority=[10]), id_columns="n")
    assert made.cancelled == []
    assert "column priority, value 10" in made.bad_rows[0][0]


def test_columns_of_the_id_alone_are_no_arguments() -> None:
    """Beside kwargs, columns of the id make the id, and do not reach the task."""
    made = made_of(batch_of(kwargs=['{"a": 1}'], n=[7]), id_columns="n")
    assert ids_of(made) == [task_id(TASK, 7)]
    assert kwargs_of(sole(made)[1]) == {"a": 1}


@pytest.fixture
def proj(redis_server: PrivateRedis) -> Iterator[Proj]:
    conf = {
        "broker_url": redis_server.url,
        "broker_transport": TRANSPORT,
        "result_backend": redis_server.url_of(1),
        "accept_content": ["json", "yaml", "msgpack"],
        "worker_prefetch_multiplier": 1,
    }
    proj = Proj(redis_server, conf, redis_server)
    yield proj
    proj.close()


def test_a_real_worker_runs_them_all(proj: Proj) -> None:
    """Rows of all kinds, of several serializers, run once each in a worker that stays connected."""
    value: dict[str, Any] = {"value": [["a", None]]}
    in_a_second = pa.array([datetime.now(UTC) + timedelta(seconds=1)], pa.timestamp("us", "UTC"))
    columns: list[dict[str, Any]] = [
        {"task": ["proj.record"]},
        {"args": ['["x"]']},
        {"kwargs": [{"value": {"at": datetime(2024, 1, 1, tzinfo=UTC), "raw": b"\xff"}}]},
        {"eta": in_a_second, **value},
        {"countdown": [0.5], "expires": [600], "priority": [9], **value},
        {"delay_level": [1], "root_id": ["r"], "parent_id": ["p"], "group_id": ["g"], **value},
        {"headers": ['{"x": [1]}'], "time_limit": [30], "soft_time_limit": [20], "ignore_result": [True], **value},
    ]
    settings = [
        apps.settings_of(apps.make(f"app_{each}", task_serializer=each, task_compression="gzip"))
        for each in ("json", "yaml", "msgpack")
    ]
    batches = [(batch_of(**each), AppSettings()) for each in columns]
    batches += [(batch_of(value=[each.conf["task_serializer"]]), each) for each in settings]
    ids = []
    with open_store(proj.server) as store:
        for n, (batch, each) in enumerate(batches):
            made = made_of(batch, each, task="proj.record")
            ids += ids_of(made)
            send(store, made.offers, WriteOptions(), f"j{n}")
    worker = proj.worker(concurrency=2)
    runs = proj.await_runs(len(batches))
    assert sorted(run["id"] for run in runs) == sorted(ids)
    assert "Traceback" not in worker.log
    assert "onnection" not in worker.log.replace("Connected to", "").partition(" ready.")[2]
    assert landed(proj.server) == []


def test_what_executors_get_has_no_password() -> None:
    """The pickle of a writer, which Spark keeps, has nothing of a password that is in the environment."""
    writer = pytest.importorskip("celery_ext.spark.write.job")
    options = WriteOptions.parse({"task": "t", "broker_url_env": "BROKER", "broker_transport_options": '{"sep": ":"}'})
    broker = Broker.of(options.broker_url, options.broker_url_env, options.broker_transport_options or {})
    app = apps.make(
        "pickled",
        broker_url=f"redis://:{SECRET}@host/0",
        broker_transport_options={"sentinel_kwargs": {"password": SECRET}},
        broker_use_ssl={"ssl_password": SECRET},
        result_backend=f"redis://:{SECRET}@host/1",
        redis_password=SECRET,
        task_routes={"a": "q"},
    )
    assert SECRET in str(AppSettings.of(f"{apps.__name__}:{app.main}").broker_url)
    job = writer.JobWriter(options, apps.settings_of(app), plan_of(batch_of(n=[1]).schema, options), broker, 1)
    assert SECRET.encode() not in pickle.dumps(job)
    assert SECRET not in repr(job)
    assert job.settings.conf["task_routes"] == {"a": "q"}
    assert pickle.loads(pickle.dumps(job)) == job


def test_an_app_with_a_password_is_refused_without_it() -> None:
    """A broker URL that comes from the app is looked at as one from an option."""
    app = apps.make("open", broker_url=[f"redis://a:1/0;redis://:{SECRET}@b:1/0"])
    found = AppSettings.of(f"{apps.__name__}:{app.main}")
    with pytest.raises(InvalidSparkOption, match="broker_url has a password") as caught:
        Broker.of(found.broker_url, None, found.transport_options)
    assert SECRET not in str(caught.value)
