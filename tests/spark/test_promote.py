"""``promote``: rows of near hours leave a table of the user's for Redis, each once, whatever is killed or cancelled."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import psutil
import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import cancel, promote, promotion
from celery_ext.spark.errors import (
    BrokerUnavailable,
    InvalidColumns,
    InvalidSparkOption,
    StragglerRefused,
    TableUnavailable,
)
from celery_ext.spark.job_types import JobRun
from celery_ext.spark.promotion import Promoted
from celery_ext.spark.tables import Window
from tests.support.conditions import until
from tests.support.spark.jobs import BEGIN, beside, delayed, kwargs, taken, tasks, write_table
from tests.support.spark.landing import open_store
from tests.support.spark.session import GONE_ENV, WRONG_ENV
from tests.support.store.jobs import jobs

#: After all hours.
LATE = BEGIN + timedelta(days=1)
#: How long a promotion may take, and until its first rows are in Redis, in s.
PROMOTION_S = 200
ALL = {str(n) for n in range(40)}


def left(table: Path) -> set[str]:
    """Returns the folders of a table that have files."""
    return {file.parent.name for file in table.glob("hour=*/*.parquet")}


def moment(headers: dict[str, Any], name: str) -> datetime:
    """Returns a time in the headers of a message."""
    return datetime.fromisoformat(headers[name])


@pytest.fixture
def options(redis_server: PrivateRedis) -> dict[str, Any]:
    """Options of a promotion."""
    return {"broker_url": redis_server.url, "task": "t", "queue": "q"}


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Path:
    """A table with 40 rows of two hours, in a folder that Spark would take for a pattern."""
    folder = tmp_path / "{a}[1]*?table"
    write_table(spark, folder, range(40))
    return folder


def test_near_hours_are_promoted(
    spark: SparkSession, client: redis.Redis, table: Path, options: dict[str, Any]
) -> None:
    """The rows of hours that begin before the time are in Redis and no longer in files; later ones stay."""
    second = BEGIN + timedelta(hours=1)
    assert promote(spark, str(table), until=second, **options) == Promoted((BEGIN,), 20, 20, 0, 0)
    assert delayed(client) == {str(n): (BEGIN.timestamp() + n) * 1000 for n in range(0, 40, 2)}
    assert left(table) == {"hour=2040-01-01T01"}
    assert promote(spark, str(table), until=second, **options) == Promoted()
    assert promote(spark, str(table), **options) == Promoted()


def test_late_rows(spark: SparkSession, client: redis.Redis, table: Path, options: dict[str, Any]) -> None:
    """Late rows of an hour are sent by the next promotion, with all columns of their files, and known ids are not."""
    promote(spark, str(table), until=LATE, **options)
    client.delete("delayq:{q}:due", "delayq:{q}:backup", "delayq:{q}:bodies")  # consumed
    write_table(spark, table, [38, 39, 40], BEGIN, "'gold' AS tier")
    write_table(spark, table, [41, 41, 42], BEGIN, "'left' AS lane")
    done = promote(spark, str(table), until=LATE, expires="10s", **options)
    assert (done.rows, done.sent, done.repeated) == (6, 3, 3)
    assert delayed(client).keys() == {"40", "41", "42"}
    bodies = [body[body.index("{") :] for body in client.hvals("delayq:{q}:bodies")]
    assert sorted((kwargs(taken(body)) for body in bodies), key=lambda given: given["id"]) == [
        {"id": 40, "tier": "gold", "lane": None},
        {"id": 41, "tier": None, "lane": "left"},
        {"id": 42, "tier": None, "lane": "left"},
    ]
    for headers in (taken(body)["headers"] for body in bodies):
        assert moment(headers, "expires") == moment(headers, "eta") + timedelta(seconds=10)
    assert left(table) == set()


def test_folders_of_hours_that_are_over_go(
    spark: SparkSession, client: redis.Redis, tmp_path: Path, options: dict[str, Any]
) -> None:
    """The folder of an hour goes with its files once the hour is over; overdue rows go at once, and expire after."""
    table = tmp_path / "table"
    for hours in (("2020-01-01T05", "2020-01-01 06%3A00%3A00"), ("2020-01-01T05",)):
        before = datetime.now(UTC)
        for hour in hours:
            rows = f"SELECT {len(hours)} AS id, timestamp'2020-01-01 0{5 + ('06' in hour)}:30:00Z' AS eta"
            spark.sql(rows).write.parquet(str(table / f"hour={hour}"))
            (table / f"hour={hour}" / "_SUCCESS").unlink()
            (table / f"hour={hour}" / "._SUCCESS.crc").unlink()
        assert promote(spark, str(table), expires="1h", **options).sent == len(hours)
        assert list(table.iterdir()) == []
        sent = [message["headers"] for message in tasks(client)][-len(hours) :]
        assert all(moment(headers, "expires") >= before + timedelta(hours=1) for headers in sent)


def test_an_hour_that_fails_does_not_stop_the_others(
    spark: SparkSession, client: redis.Redis, table: Path, options: dict[str, Any]
) -> None:
    """Folders that cannot be promoted stay, and the first is the error, once the other hours are in Redis."""
    wrong = [f"hour=2039-12-31T{hour}" for hour in (21, 22)]
    (table / "hour=2040-01-01T00").rename(table / wrong[0])
    (table / wrong[1]).mkdir()
    write_table(spark, table / "other", range(40, 42))
    (table / "other" / "hour=2040-01-01T00").rename(table / wrong[1] / "_region=eu")
    null = "hour=__HIVE_DEFAULT_PARTITION__"
    (table / "other" / "hour=2040-01-01T01").rename(table / null)

    def select(rows: DataFrame) -> DataFrame:
        # With one task, no other goes on after the test.
        return rows.selectExpr("id", "task_id", "IF(id = 1, NULL, eta) AS eta").coalesce(1)

    with pytest.raises(Exception, match="rows of the hour 2039-12-31T21 are due in another hour") as caught:
        promote(spark, str(table), until=LATE, select=select, on_bad_row="drop", **options)
    [note] = caught.value.__notes__
    assert note.endswith(f"what else is near was: 2039-12-31T21, 2039-12-31T22, {null}")
    assert delayed(client).keys() == {str(n) for n in range(3, 40, 2)}
    assert tasks(client) == []
    assert left(table) == {wrong[0], null}
    rmtree(table / wrong[0])
    with pytest.raises(TableUnavailable, match=r"has folders within the hour.*partitioned by hour alone"):
        promote(spark, str(table), until=LATE, **options)
    rmtree(table / wrong[1])
    with pytest.raises(TableUnavailable, match=r"PARTITION__ have no eta.*: delete the folder"):
        promote(spark, str(table), until=LATE, **options)


class Killed(BaseException):
    """The end of a process, as far as the code after it is concerned."""


def _killed(*args: Any, **kwargs: Any) -> Any:
    raise Killed


@pytest.mark.parametrize(
    ("where", "what"),
    [("tables.Window", lambda rows, *_: Window(rows, _killed)), ("promotion._with", _killed)],
    ids=["sent", "removed"],
)
def test_a_promotion_that_was_killed_is_completed(
    spark: SparkSession,
    client: redis.Redis,
    table: Path,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    what: Callable[..., Any],
) -> None:
    """The next promotion sends what is missing, late rows among it, and nothing that was delivered meanwhile."""
    with monkeypatch.context() as patched:
        patched.setattr(f"celery_ext.spark.{where}", what)
        with pytest.raises(Killed):
            promote(spark, str(table), until=LATE, **options)
    consumed = client.zpopmin("delayq:{q}:due", 3)
    client.hdel("delayq:{q}:backup", *(member for member, _ in consumed))
    write_table(spark, table, [40, 41])
    promote(spark, str(table), until=LATE, **options)
    assert delayed(client).keys() | {member for member, _ in consumed} == {*ALL, "40", "41"}
    assert client.zcard("delayq:{q}:due") == 39
    assert left(table) == set()


def test_python_workers_that_are_killed(
    spark: SparkSession, client: redis.Redis, table: Path, options: dict[str, Any]
) -> None:
    """The Spark task runs again, and sends each row once, among them none that was delivered before."""
    with beside(spark, promote, spark, str(table), until=LATE, max_rate=20, **options) as promoted:
        until(lambda: client.zcard("delayq:{q}:due") >= 5, PROMOTION_S)
        [head] = client.zpopmin("delayq:{q}:due")
        client.hdel("delayq:{q}:backup", head[0])
        _kill_python_workers(spark)
        assert promoted.result(PROMOTION_S).rows == 40
    assert delayed(client).keys() | {head[0]} == ALL
    assert client.zcard("delayq:{q}:due") == 39


def _kill_python_workers(spark: SparkSession) -> None:
    """Kills the Python workers of the session, which are the children of its daemons."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    living = [child for child in jvm.children() if child.status() != psutil.STATUS_ZOMBIE]
    daemons = [child for child in living if "pyspark.daemon" in child.cmdline()]
    workers = [worker for daemon in daemons for worker in daemon.children()]
    assert workers
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)


def test_cancel_while_rows_are_promoted(
    spark: SparkSession, client: redis.Redis, tmp_path: Path, options: dict[str, Any]
) -> None:
    """A row is read by a promotion, taken out of the table and cancelled, and then never sent: the hour begins anew."""
    # An hour that a cancel begins anew, and whose rows are due after the test.
    table, sold, soon = tmp_path / "table", tmp_path / "sold.csv", datetime.now(UTC) + timedelta(minutes=110)
    ids = [*range(0, 40, 2), 7, 9]
    write_table(spark, table, ids, soon.replace(minute=0, second=0, microsecond=0))
    sold.write_text("7\n")
    selected: list[int] = []

    def select(rows: DataFrame) -> DataFrame:
        selected.append(1)
        return rows.join(spark.read.csv(str(sold), "id long"), "id", "left_anti")

    slowly = {**options, "max_rate": 1, "chunk_size": 1}  # a busy machine cancels for a while
    with beside(spark, promote, spark, str(table), until=LATE, select=select, **slowly) as promoted:
        until(lambda: client.zcard("delayq:{q}:due") >= 2, PROMOTION_S)
        sold.write_text("6\n7\n8\n")
        cancel(spark.createDataFrame([("6",), ("8",)], "task_id string"), str(table), **options)
        assert promoted.result(PROMOTION_S).rows == 19
    assert len(selected) == 3
    assert delayed(client).keys() == {str(n) for n in ids if n not in (6, 7, 8)}
    assert left(table) == set()


def test_a_row_that_is_scheduled_again(
    spark: SparkSession, client: redis.Redis, tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled task comes again, a moved one gets its new time, and the log counts the rows that are not sent."""
    soon = (datetime.now(UTC) + timedelta(minutes=110)).replace(minute=0, second=0, microsecond=0)
    table, options = tmp_path / "table", {**options, "if_waiting": "replace", "until": LATE}
    write_table(spark, table, [0, 2, 4], soon)
    assert promote(spark, str(table), **options) == Promoted((soon,), 3, 3)
    del options["until"]
    assert cancel(spark.createDataFrame([("2",)], "task_id string"), str(table), **options) == 1
    write_table(spark, table, [2], soon)
    write_table(spark, table, [4], soon + timedelta(minutes=1))
    assert promote(spark, str(table), until=LATE, **options) == Promoted((soon,), 2, 2)
    due = {"0": soon, "2": soon + timedelta(seconds=2), "4": soon + timedelta(seconds=64)}
    assert delayed(client) == {one: when.timestamp() * 1000 for one, when in due.items()}
    caplog.clear()
    write_table(spark, table, [0], soon)
    assert promote(spark, str(table), until=LATE, **options) == Promoted((soon,), 1, 0, 1)
    assert f"1 rows of {table} in the hour {soon:%Y-%m-%dT%H} were removed and not sent" in caplog.text


def test_a_cancel_once_the_last_row_is_sent(
    spark: SparkSession, client: redis.Redis, table: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hour is read anew before rows are removed, since one that was cancelled may be there again."""
    real, selected = promotion._Promotion._is_interrupted, list[int]()

    def cancelled_meanwhile(self: promotion._Promotion, name: str, run: int) -> bool:
        if len(selected) == 1:
            jobs(self.store).finish(JobRun(name, jobs(self.store).new_run(), 60_000), "aborted")
        return real(self, name, run)

    def select(rows: DataFrame) -> DataFrame:
        selected.append(1)
        return rows

    monkeypatch.setattr(promotion._Promotion, "_is_interrupted", cancelled_meanwhile)
    done = promote(spark, str(table), until=LATE, select=select, **options)
    assert (len(selected), done.rows, done.sent, done.repeated) == (3, 40, 40, 0)
    assert delayed(client).keys() == ALL
    assert left(table) == set()


def test_two_at_once(spark: SparkSession, client: redis.Redis, table: Path, options: dict[str, Any]) -> None:
    """Each row is sent once, whichever of the two goes on."""

    def select(rows: DataFrame) -> DataFrame:
        return rows.coalesce(1)  # no other task goes on after the test

    options = {**options, "until": LATE, "select": select}
    with beside(spark, promote, spark, str(table), max_rate=20, **options) as promoted:
        until(lambda: client.zcard("delayq:{q}:due") >= 3, PROMOTION_S)
        taken = client.zpopmin("delayq:{q}:due", 2)
        with suppress(StragglerRefused):  # where the first begins the second hour last
            promote(spark, str(table), **options)
        promoted.exception(PROMOTION_S)
    assert delayed(client).keys() | {member for member, _ in taken} == ALL
    assert client.zcard("delayq:{q}:due") == 38
    assert left(table) == set()


def test_another_promotion_of_the_same_hour(
    spark: SparkSession, redis_server: PrivateRedis, table: Path, options: dict[str, Any]
) -> None:
    """A promotion that another one takes over says so, and removes nothing."""

    def taken_over(rows: DataFrame) -> DataFrame:
        with open_store(redis_server) as store:
            jobs(store).begin(JobRun(f"promote/{table}/2040-01-01T00", 10**6, 60_000))
        return rows.coalesce(1)  # no other task goes on after the test

    with pytest.raises(StragglerRefused, match=r"another promotion of .*table has begun, and goes on"):
        promote(spark, str(table), until=LATE, select=taken_over, **options)
    assert len(left(table)) == 2


@pytest.mark.parametrize("env", [WRONG_ENV, GONE_ENV], ids=["password", "address"])
def test_a_broker_that_cannot_be_used(spark: SparkSession, env: str) -> None:
    """A wrong password or address fails a promotion at once."""
    with pytest.raises(BrokerUnavailable, match=r"^the broker .* cannot be used"):
        promote(spark, "/table", broker_url_env=env, write_timeout="3s", task="t")


def test_rows_that_cannot_be_removed(spark: SparkSession, client: redis.Redis, options: dict[str, Any]) -> None:
    """What MERGE has against it is told in a line, and that the rows were sent, once, and are still there."""
    rows = spark.createDataFrame([("1",), ("2",)], "task_id string")
    rows.withColumn("eta", f.lit(BEGIN)).write.saveAsTable("without_merge")
    try:
        for _ in range(2):
            with pytest.raises(
                TableUnavailable, match=r"were sent, and could not be removed from without_merge\. .*MERGE"
            ) as at:
                promote(spark, "without_merge", until=LATE, **options)
            assert "\n" not in str(at.value)
            assert at.value.__suppress_context__
        assert spark.table("without_merge").count() == 2
    finally:
        spark.sql("DROP TABLE without_merge")
    assert delayed(client).keys() == {"1", "2"}


def test_wrong_uses(spark: SparkSession, client: redis.Redis, tmp_path: Path, options: dict[str, Any]) -> None:
    """A folder that is missing, empty or of another kind, an unknown option and a wrong eta are errors that say so."""
    folder = tmp_path / "table"
    with pytest.raises(TableUnavailable, match=r"is missing\. Is its disk mounted"):
        promote(spark, str(folder), **options)
    folder.mkdir()
    with pytest.raises(TableUnavailable, match="has no folder hour=…"):
        promote(spark, str(folder), **options)
    (folder / "hour=22").mkdir()
    with pytest.raises(TableUnavailable, match="is not of an hour in UTC"):
        promote(spark, str(folder), **options)
    (folder / "hour=22").rename(folder / "hour=2020-01-01T00")
    assert promote(spark, str(folder), **options) == Promoted()
    with pytest.raises(InvalidSparkOption, match="lead is not an option"):
        promote(spark, str(folder), lead=3, **options)
    with pytest.raises(InvalidSparkOption, match="job_id is not an option of a promotion"):
        promote(spark, str(folder), job_id="j", **options)
    rows = spark.sql("SELECT 1 AS id, timestamp'2020-01-01 01:30:00Z' AS eta")
    rows.write.mode("append").parquet(str(folder / "hour=2020-01-01T00"))
    with pytest.raises(Exception, match="rows of the hour 2020-01-01T00 are due in another hour"):
        promote(spark, str(folder), **options)
    with pytest.raises(InvalidColumns, match="column eta is string"):
        promote(spark, str(folder), select=lambda found: found.withColumn("eta", found.eta.cast("string")), **options)
    with pytest.raises(InvalidColumns, match="column eta is missing"):
        promote(spark, str(folder), select=lambda found: found.drop("eta"), **options)
    with pytest.raises(InvalidColumns, match=r"column op is for streams; cancel rows of a table with celery_ext"):
        promote(spark, str(folder), select=lambda found: found.selectExpr("*", "'cancel' AS op"), **options)
    assert delayed(client) == {}
