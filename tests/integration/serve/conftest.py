"""Servers on a machine that may be busy."""

import pytest

from celery_ext.serve import bulk_runs
from tests.support.conditions import DEADLINE_S


@pytest.fixture(autouse=True)
def counts_patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the answer to a new bulk action have the number of its tasks, however long the counting takes."""
    monkeypatch.setattr(bulk_runs, "WAIT_S", DEADLINE_S)
