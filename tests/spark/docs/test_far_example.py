"""The example with a year of reminders, small, in the session of the tests, and its DAG."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.spark.jobs import HOUR

EXAMPLE = ROOT / "docs" / "examples" / "spark" / "reminders"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield import_module("demo")
    for module in (*EXAMPLE.glob("*.py"), *EXAMPLE.parent.glob("*.py")):
        sys.modules.pop(module.stem, None)


@pytest.mark.timeout(600)
def test_the_reminders_of_today_are_sent_once(
    demo: Any,
    spark: SparkSession,
    redis_server: PrivateRedis,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each reminder of today is sent once, none that was cancelled, and none of the days after."""
    monkeypatch.setattr(demo, "READY_S", 10)
    monkeypatch.setattr(demo, "WITHIN", timedelta(seconds=3))
    for name in ("GARAGE_BROKER", "GARAGE_DIRECTORY"):
        monkeypatch.setenv(name, "")  # is set anew by the demo, and as before after the test
    outcome = demo.Demo(redis_server, tmp_path, spark, rows=600, first=200, days=1).run()
    assert outcome.problems == []
    assert sum(outcome.sent.values()) == 198
    assert outcome.figures["reminders that wait, by a query"].startswith("400 on ")
    assert outcome.figures["reminders promoted to Redis"].startswith("199 in ")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_the_hour_of_a_row_is_in_utc(demo: Any, spark: SparkSession, zone: str) -> None:
    """The expression of page and example is right for each quarter of an hour of a year, in zones of all kinds."""
    page = (ROOT / "docs" / "how-to" / "spark" / "far.md").read_text(encoding="utf-8")
    assert f'hour = "{HOUR}"' in page
    assert sys.modules["reminders"].HOUR == HOUR  # type: ignore[attr-defined]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        times = spark.range(0, 366 * 96).selectExpr("timestamp_seconds(1767225600 + id * 900) AS eta")
        found = times.selectExpr("unix_seconds(eta) div 3600 AS h", f"{HOUR} AS hour").distinct().collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert len(found) == 366 * 24
    assert [row for row in found if row.hour != f"{datetime.fromtimestamp(row.h * 3600, UTC):%Y-%m-%dT%H}"] == []


DAG = ROOT / "docs" / "examples" / "spark" / "reminders" / "promote_dag.py"


class Airflow(ModuleType):
    """Notes DAGs and tasks instead of Airflow, which is not installed here."""

    def __init__(self) -> None:
        super().__init__("airflow.sdk")
        self.schedules: dict[str, str] = {}
        self.tasks: list[str] = []

    def dag(self, *, schedule: str, **given: Any) -> Callable[[Any], Any]:
        """Decorates a DAG."""

        def decorate(function: Any) -> Any:
            self.schedules[function.__name__] = schedule
            return function

        return decorate

    def task(self, function: Any) -> Any:
        """Decorates a task, which is then not run but noted."""
        return lambda: self.tasks.append(function.__name__)


def test_the_dag_has_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow finds a DAG in the file whose task promotes each hour."""
    airflow = Airflow()
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", airflow)
    spec = spec_from_file_location("promote_dag", DAG)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))
    assert airflow.schedules == {"promote_reminders": "7 * * * *"}
    assert airflow.tasks == ["promote"]
