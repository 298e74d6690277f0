"""One task once while it waits, with a worker."""

import pytest

from celery_ext import install
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj


@pytest.mark.journey
def test_of_many_calls_one_runs_until_it_has_left(make_proj: MakeProj) -> None:
    """Of ten calls that are kept or replace each other one runs, with the right arguments; the next call runs again."""
    proj = make_proj()
    install(proj.app)
    proj.worker(concurrency=1)
    outcomes = [proj.send("record", n, countdown=2, task_id="keep", if_waiting="keep").if_waiting for n in range(10)]
    assert outcomes == ["added", *["kept"] * 9]
    outcomes = [proj.send("record", n, countdown=2, task_id="last", if_waiting="replace").if_waiting for n in range(10)]
    assert outcomes == ["added", *["replaced"] * 9]
    until(lambda: proj.runs(id="keep") and proj.runs(id="last"), 30)
    assert proj.send("record", 10, task_id="keep", if_waiting="keep").if_waiting == "added"
    until(lambda: len(proj.runs(id="keep")) == 2, 30)
    assert len(proj.runs(id="last")) == 1
