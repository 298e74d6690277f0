"""The Python blocks of the pages about Spark run as they are written."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job, task_id
from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.columns import Columns
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.pages import blocks
from tests.support.spark.jobs import delayed, kwargs, tasks
from tests.support.workers.harness import TRANSPORT

HOW_TO = ROOT / "docs" / "how-to"
WRITES = [HOW_TO / name for name in ("spark/write.md", "spark/pressure.md")]
#: Broker URLs of the pages.
URLS = ("redis://redis:6379/0", "redis://localhost:6379/0")
ORDERED_AT = datetime(2030, 1, 31, 12, tzinfo=UTC)
#: What the write of the page has, and the one with a column ``eta`` has not.
COUNTDOWN = '    .option("countdown", "30m")\n'
IDS = (4711, 4712, 4713)


def block(page: Path, *words: str) -> str:
    """Returns the only Python block of a page that has all of these words."""
    [found] = [code for code in blocks(page, "python") if all(word in code for word in words)]
    return found


@pytest.fixture
def run(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> Callable[..., dict[str, Any]]:
    """Runs a block, with the broker of the tests in place of the page's, and returns its names."""

    def run(code: str, **names: Any) -> dict[str, Any]:
        for url in URLS:
            code = code.replace(url, redis_server.url)
        names = {"spark": spark, "day": "2030-01-31", **names}
        exec(compile(code, "<page>", "exec"), names)  # noqa: S102 pages of ours
        return names

    return run


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    """Three orders."""
    rows = [(each, f"customer {each}", Decimal("9.90"), ORDERED_AT) for each in IDS]
    return spark.createDataFrame(rows, "order_id int, customer string, total decimal(10, 2), ordered_at timestamp")


@pytest.mark.parametrize("page", WRITES, ids=lambda page: page.stem)
def test_each_page_writes_its_rows(page: Path, run: Callable[..., Any], orders: DataFrame, client: redis.Redis) -> None:
    """The write that a page begins with makes a task of each order, under the id that ``task_id`` tells."""
    run(block(page, ".save()"), orders=orders)
    sent = [*tasks(client, "orders"), *tasks(client, "celery"), *waiting(client)]
    assert {message["headers"]["id"] for message in sent} == {task_id("orders.close", each) for each in IDS}
    assert len(sent) == len(IDS)
    assert sorted(kwargs(message)["order_id"] for message in sent) == sorted(IDS)


def test_sql_and_a_first_look_write_their_rows(
    run: Callable[..., Any], orders: DataFrame, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """The block for a new platform sends its rows; those of SQL make a view, whose rows become tasks, and once only."""
    page = HOW_TO / "spark/index.md"
    url = f'"broker_url", "{redis_server.url}"'
    names = run(block(page, "first-look").replace('"broker_url_env", "SHOP_BROKER_URL"', url))
    assert client.llen("first-look") == 100
    unpaid = orders.selectExpr("order_id", "ordered_at", "CAST(NULL AS TIMESTAMP) AS paid_at")
    unpaid.createOrReplaceTempView("orders")
    [code] = [sql for sql in blocks(page, "sql") if "INSERT" in sql]
    code = code.replace("broker_url_env 'SHOP_BROKER_URL'", f"broker_url '{redis_server.url}'")
    made, inserted = [part for part in code.split(";") if part.strip()]
    try:
        for statement in (made, inserted):
            names["spark"].sql(statement)
        with pytest.raises(AnalysisException, match="JobCommittedBefore"):
            names["spark"].sql(inserted)
    finally:
        names["spark"].catalog.dropTempView("orders")  # a test of tables has one of this name
    due_ms = (ORDERED_AT + timedelta(minutes=30)).timestamp() * 1000
    assert delayed(client, "orders") == {task_id("orders.close", one): due_ms for one in IDS}
    found = job(redis_server.url, "close-orders-2026-11-20")
    assert found is not None
    assert (found.state, found.rows, found.sent) == ("committed", 3, 3)


def test_columns_say_what_each_task_is(run: Callable[..., Any], orders: DataFrame, client: redis.Redis) -> None:
    """Reserved columns make positional and keyword arguments, due times and priorities of rows."""
    page = HOW_TO / "spark/write.md"
    made = run(block(page, "tasks = orders.select"), orders=orders)["tasks"]
    run(
        block(page, ".save()").replace('"id_columns", "order_id"', '"queue", "orders"').replace(COUNTDOWN, ""),
        orders=made,
    )
    [message] = [each for each in waiting(client) if arguments(each)[0] == [4711]]
    assert message["headers"]["eta"] == (ORDERED_AT + timedelta(minutes=30)).isoformat()
    assert arguments(message)[1].keys() == {"customer", "total"}
    assert message["properties"]["priority"] == 0


def test_the_app_tells_where_tasks_go(
    spark: SparkSession,
    run: Callable[..., Any],
    orders: DataFrame,
    redis_server: PrivateRedis,
    client: redis.Redis,
    tmp_path: Path,
) -> None:
    """An app that Spark's Python finds by ``addPyFile`` gives its routes and its broker."""
    module = tmp_path / "shop.py"
    module.write_text(
        f"from celery import Celery\napp = Celery('shop', broker={redis_server.url!r})\n"
        "app.conf.task_routes = {'orders.*': {'queue': 'routed'}}\n"
    )
    spark.sparkContext.addPyFile(str(module))
    run(block(HOW_TO / "spark/write.md", "celery_app"), orders=orders)["writer"].mode("append").save()
    assert len(tasks(client, "routed")) == len(IDS)


def test_a_task_is_cancelled_by_the_values_of_its_row(
    run: Callable[..., Any], orders: DataFrame, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """Whoever knows an order's number can cancel its task."""
    run(block(HOW_TO / "spark/write.md", ".save()"), orders=orders)
    app = Celery("shop", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    run(block(HOW_TO / "spark/write.md", "cancel(app"), app=app)
    app.close()
    assert set(delayed(client, "orders")) == {task_id("orders.close", each) for each in IDS if each != 4711}


def test_a_stream_enqueues_and_cancels(
    spark: SparkSession, run: Callable[..., Any], client: redis.Redis, tmp_path: Path
) -> None:
    """The stream of the page enqueues a task for each order, and cancels those of orders that are paid."""
    events, landing = tmp_path / "events", tmp_path / "landing"
    events.mkdir()

    def happen(event: str, *order_ids: int) -> None:
        landing.write_text("".join(json.dumps({"event": event, "order_id": each}) + "\n" for each in order_ids))
        landing.rename(events / f"{event}.json")

    happen("ordered", *IDS)
    page = HOW_TO / "spark/stream.md"
    source = spark.readStream.schema("event string, order_id int").json(str(events))
    operations = run(block(page, "operations ="), events=source)["operations"]
    query = run(block(page, "writeStream"), events=operations, checkpoint=str(tmp_path / "checkpoint"))["query"]
    try:
        until(lambda: len(delayed(client, "orders")) == len(IDS), 150, "tasks of all orders")
        happen("paid", 4712)
        expected = {task_id("orders.close", each) for each in IDS if each != 4712}
        until(lambda: set(delayed(client, "orders")) == expected, 100, "the task of the paid order cancelled")
    finally:
        query.stop()


def test_errors_are_as_the_page_shows_them() -> None:
    """The texts of errors that the page shows are those of the code."""
    page = (HOW_TO / "spark/write.md").read_text(encoding="utf-8")
    with pytest.raises(InvalidSparkOption) as option:
        WriteOptions.parse({"que": "orders"})
    with pytest.raises(InvalidColumns) as eta:
        Columns.of(StructType().add("eta", "string"), WriteOptions(task="orders.close"))
    for caught in (option, eta):
        assert f"celery_ext.spark.errors.{caught.typename}: {caught.value}\n" in page


def waiting(client: redis.Redis) -> Iterator[dict[str, Any]]:
    """Yields the messages that wait in the delayed store of the queue ``orders``."""
    for body in client.hvals("delayq:{orders}:bodies"):
        yield json.loads(body[body.index("{") :])


def arguments(message: dict[str, Any]) -> Any:
    """Returns the positional and the keyword arguments of a message, and what else its body has."""
    return json.loads(b64decode(message["body"]))
