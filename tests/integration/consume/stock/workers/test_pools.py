"""Each pool of workers: what runs at a time, runs once, and is acknowledged."""

from importlib.util import find_spec

import pytest

from tests.support.conditions import stays, until
from tests.support.workers.consumers import held, none_held, waiting
from tests.support.workers.harness import MakeProj

needs_eventlet = pytest.mark.skipif(not find_spec("eventlet"), reason="eventlet is not installed")
#: A journey in each of Celery's two loops; `make test-all` runs the others.
POOLS = [
    pytest.param("prefork", marks=pytest.mark.journey),
    "threads",
    "solo",
    pytest.param("gevent", marks=pytest.mark.journey),
    pytest.param("eventlet", marks=[needs_eventlet]),
]


@pytest.mark.parametrize("pool", POOLS)
def test_every_pool_runs_each_task_once(make_proj: MakeProj, pool: str) -> None:
    """A pool runs as many tasks at a time as it can, all of them once, and leaves nothing behind when it ends."""
    proj = make_proj(include=["stock_tasks"], worker_prefetch_multiplier=1)
    client = proj.server.client()
    worker = proj.worker(pool=pool, concurrency=3)
    at_a_time = 1 if pool == "solo" else 3
    for value in range(6):
        proj.send("gated_late", "gate", value)
    until(lambda: len(proj.runs()) == at_a_time and held(client) == at_a_time)
    stays(lambda: len(waiting(client)) == 6 - at_a_time and len(proj.runs()) == at_a_time, 0.3)
    for value in range(6):
        proj.send("record", value)
        proj.send("late_acked", 0, value)
    proj.journal.set("gate", 1)
    proj.await_runs(12 + 12)
    until(lambda: none_held(client) and not waiting(client))
    for name in ("record", "late_acked"):
        assert sorted(run["value"] for run in proj.runs(name=name)) == [*range(6)]
    assert worker.stop() == 0
    assert len(proj.runs()) == 24
    assert not client.exists("celery", "unacked", "unacked_index")
