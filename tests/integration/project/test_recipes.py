"""The recipes: their code runs as it stands in the page."""

from datetime import UTC, date, datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from celery import Celery

from celery_ext import Call, select, send_many
from tests.support import ROOT
from tests.support.pages import blocks
from tests.support.workers.harness import Proj


def test_rows_of_parquet_are_due_at_nine_where_their_customer_lives(
    proj: Proj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe reads a file by batches, and each row waits until 9:00 in its own zone."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    rows = [{"id": 1, "zone": "Europe/Berlin"}, {"id": 2, "zone": "Asia/Tokyo"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "customers.parquet")
    monkeypatch.chdir(tmp_path)
    [recipe] = [code for code in blocks(ROOT / "docs/recipes.md", "python") if "parquet" in code]
    app: Celery = proj.app
    names = {"Call": Call, "ZoneInfo": ZoneInfo, "datetime": datetime, "pyarrow": pyarrow, "send_many": send_many}
    exec(recipe, {**names, "app": app, "day": date(2099, 7, 1), "remind": "proj.record", "time": time})  # noqa: S102
    dues = {task.args[0]: task.due for task in select(app)}
    assert dues == {1: datetime(2099, 7, 1, 7, tzinfo=UTC), 2: datetime(2099, 7, 1, tzinfo=UTC)}
