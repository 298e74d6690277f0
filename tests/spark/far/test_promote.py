"""``promote``: hours that are near go to Redis, each row once, whatever was killed before."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import cancel, promote
from celery_ext.spark.errors import FarTierUnavailable, InvalidSparkOption
from celery_ext.spark.far.filesystem import Files
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far_jobs.promote import Promoted
from tests.support.spark.far import commit, files_of, waiting_ids
from tests.support.spark.jobs import append, delayed, tasks

IDS = [f"id {n}" for n in range(40)]
#: Before this time all rows of a committed job are near.
LATE = datetime(2040, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """The end of a process, as far as the code after it is concerned."""


def test_near_hours_are_promoted(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """The rows of hours before the time are in Redis and no longer in files, and later ones stay."""
    manifest = commit(tmp_path, IDS, hours=4)
    hours = sorted({file.hour for file in manifest.files})
    before = datetime.fromisoformat(f"{hours[2]}:00+00:00")
    done = promote(spark, str(tmp_path), before, broker_url=redis_server.url)
    assert done == Promoted(tuple(hours[:2]), 20, 20, 0, 0, 2)
    near = {task_id for n, task_id in enumerate(IDS) if n % 4 < 2}
    assert delayed(client).keys() == near
    assert waiting_ids(tmp_path).keys() == set(IDS) - near
    assert {Path(path).parent.name for path in files_of(tmp_path, "data")} == {f"hour={hour}" for hour in hours[2:]}
    assert promote(spark, str(tmp_path), before, broker_url=redis_server.url) == Promoted()
    commit(tmp_path, ["later"], job="later")  # into an hour that was promoted
    assert promote(spark, str(tmp_path), before, broker_url=redis_server.url).sent == 1
    assert delayed(client).keys() == {*near, "later"}
    assert not client.keys("{delayq}:guard:*")


def test_what_a_job_has_written_arrives(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """Rows of a Spark job are due when the job says, and those that are due by now are sent at once."""
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "id * 1e5D + 1.0 AS countdown")
    append(rows, redis_server, far=tmp_path, far_horizon="0.5s", id_columns="id", job_id="nightly")
    assert len(waiting_ids(tmp_path)) == 20
    base_ms = FarTier.of(str(tmp_path)).manifests()[0].base_ms
    promote(spark, str(tmp_path), broker_url=redis_server.url)
    assert len(tasks(client)) + len(delayed(client)) == 1  # two hours from now
    promote(spark, str(tmp_path), LATE, broker_url=redis_server.url)
    due = sorted(delayed(client).values())
    assert due[-19:] == [pytest.approx(base_ms + n * 1e8 + 1000) for n in range(1, 20)]
    assert waiting_ids(tmp_path) == {}


def _files_put(stage: int) -> Callable[..., None]:
    """Returns a ``Files.put`` that is killed at the nth call, or that kills the call after it."""
    put, calls = Files.put, iter(range(100))

    def stop(self: Files, path: str, content: bytes) -> None:
        if next(calls) == stage:
            raise Killed
        put(self, path, content)

    return stop


def _killed(*args: Any, **kwargs: Any) -> Any:
    raise Killed


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("celery_ext.spark.far_jobs.promote._Promotion._load", _killed),
        ("celery_ext.spark.far_jobs.promote._Promotion._commit", _killed),
        ("celery_ext.spark.far.filesystem.Files.put", _files_put(1)),
        ("celery_ext.spark.far.filesystem.Files.delete", _killed),
    ],
    ids=["begun", "loaded", "committed", "done"],
)
def test_a_promotion_that_was_killed_is_completed(
    spark: SparkSession,
    redis_server: PrivateRedis,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    what: Callable[..., Any],
) -> None:
    """Whatever the last thing was that a promotion did, the next one leaves each row in Redis once, and no file."""
    commit(tmp_path, IDS, hours=2)
    with monkeypatch.context() as patched:
        patched.setattr(where, what)
        with pytest.raises(Killed):
            promote(spark, str(tmp_path), LATE, broker_url=redis_server.url)
    consumed = client.zpopmin("delayq:{q}:due", 3)  # by a worker, so that only the guard knows these
    client.hdel("delayq:{q}:bodies", *(member for member, _ in consumed)) if consumed else None
    promote(spark, str(tmp_path), LATE, broker_url=redis_server.url)
    assert len(delayed(client)) == 40 - len(consumed)
    assert waiting_ids(tmp_path) == {}
    assert promote(spark, str(tmp_path), LATE, broker_url=redis_server.url) == Promoted()


def test_tombstones(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A cancelled row is not promoted, and the same id in a later job is."""
    commit(tmp_path, IDS)
    dead = spark.createDataFrame([(task_id,) for task_id in IDS[:5]], "id string")
    words = cancel(str(tmp_path), dead, broker_url=redis_server.url)
    assert words == dict.fromkeys(IDS[:5], "cancelled")
    assert waiting_ids(tmp_path).keys() == set(IDS[5:])
    assert cancel(str(tmp_path), ["no id"], broker_url=redis_server.url) == {"no id": "not_delayed"}
    commit(tmp_path, IDS[:1], job="later")
    done = promote(spark, str(tmp_path), LATE, broker_url=redis_server.url)
    assert (done.rows, done.sent, done.cancelled) == (41, 36, 5)
    assert delayed(client).keys() == {IDS[0], *IDS[5:]}


def test_wrong_uses(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A folder that is none, an unknown option and a manifest of later times are errors that say so."""
    with pytest.raises(InvalidSparkOption, match="neither a URL nor an absolute path"):
        promote(spark, "far", broker_url=redis_server.url)
    with pytest.raises(InvalidSparkOption, match="lead is not an option"):
        promote(spark, str(tmp_path), broker_url=redis_server.url, lead=3)
    assert promote(spark, str(tmp_path), broker_url=redis_server.url) == Promoted()
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "0.json").write_text('{"version": 2}')
    with pytest.raises(FarTierUnavailable, match="has version 2; this release reads up to 1"):
        promote(spark, str(tmp_path), LATE, broker_url=redis_server.url)
