"""The example with a year of reminders, small, in the session of the tests, and its DAG."""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
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
