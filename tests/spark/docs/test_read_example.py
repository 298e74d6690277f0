"""The example that plots how many tasks are due in each minute."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.types import Offer
from tests.support import ROOT
from tests.support.missing import missing
from tests.support.spark.reading import store_of

EXAMPLE = ROOT / "docs" / "examples" / "spark" / "due_per_minute.py"
BEGIN = datetime(2100, 1, 1, 23, 30, tzinfo=UTC)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    yield import_module("due_per_minute")
    sys.modules.pop("due_per_minute", None)


@pytest.fixture
def matplotlib() -> None:
    """Without matplotlib, which only this example needs, tests that draw fail in CI, and are skipped elsewhere."""
    if find_spec("matplotlib") is None:
        missing("matplotlib is not installed")


def offer(server: PrivateRedis, task: str, due: datetime, count: int) -> None:
    """Lets tasks wait."""
    store = store_of(server)
    body = '{"headers": {"task": "%s", "id": "%s"}}' if task else "%s%s"
    ids = [f"{task}-{due.timestamp()}-{n}" for n in range(count)]
    store.delivery.offer("q", *(Offer(each, repr(due.timestamp() * 1000), 0, body % (task, each)) for each in ids))
    store.close()


def test_tasks_are_counted_by_minute(
    example: Any, spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """Each minute of the day has its tasks; what is due before or after the day is not counted."""
    offer(redis_server, "a", BEGIN, 3)
    offer(redis_server, "a", BEGIN + timedelta(seconds=59.999), 1)
    offer(redis_server, "b", BEGIN + timedelta(minutes=1), 5)
    offer(redis_server, "", BEGIN + timedelta(hours=23, minutes=59), 2)
    offer(redis_server, "a", BEGIN - timedelta(milliseconds=1), 7)
    offer(redis_server, "a", BEGIN + timedelta(days=1), 7)
    counts = example.by_task(example.due_per_minute(spark, redis_server.url, BEGIN), BEGIN)
    assert list(counts) == ["b", "a", "no task"]
    assert {task: {at: n for at, n in enumerate(each) if n} for task, each in counts.items()} == {
        "a": {0: 4},
        "b": {1: 5},
        "no task": {1439: 2},
    }


@pytest.mark.parametrize("counts", [{}, {"a": [1] * 1440}, {name: [5, 0] * 720 for name in "abcdef"}], ids=range(3))
def test_a_picture_is_drawn(example: Any, matplotlib: None, counts: Any, tmp_path: Path) -> None:
    """Whatever waits, a PNG is written."""
    example.plot(counts, BEGIN, tmp_path / "due.png")
    assert (tmp_path / "due.png").read_bytes().startswith(b"\x89PNG")


def test_the_day_that_begins_now_is_drawn(
    example: Any,
    spark: SparkSession,
    redis_server: PrivateRedis,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The picture has what is due within the next 24 hours."""
    drawn: list[Any] = []
    monkeypatch.setattr(example, "plot", lambda counts, *_: drawn.append(counts))
    offer(redis_server, "orders.close", datetime.now(UTC) + timedelta(hours=2), 20)
    offer(redis_server, "orders.close", datetime.now(UTC) + timedelta(hours=25), 20)
    example.draw(spark, redis_server.url, tmp_path / "due.png")
    assert [sum(counts["orders.close"]) for counts in drawn] == [20]
