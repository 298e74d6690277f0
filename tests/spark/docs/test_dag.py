"""The DAG of the example promotes, as Airflow would have it do it."""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest

from tests.support import ROOT

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
