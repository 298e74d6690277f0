"""What runs at a time in each pool of workers, and what becomes of its messages, however a task ends."""

from importlib.util import find_spec

import celery
import pytest

from tests.support.conditions import stays, until
from tests.support.workers.consumers import held, none_held, ready, waiting
from tests.support.workers.harness import MakeProj

#: What each task does at each of its runs: whether its message was redelivered.
ONCE, TWICE = [False], [False, True]
OUTCOMES = {
    "requeued": TWICE,
    **dict.fromkeys(("dropped", "ignored", "fail", "fail_unacked"), ONCE),
    "again": [False, False],
}
OF_PROCESSES = OUTCOMES | {"die_once": TWICE, **dict.fromkeys(("too_long", "softly", "die"), ONCE)}
if celery.VERSION >= (5, 7):  # before, such a message stayed in hand until the worker ended
    OF_PROCESSES["too_long_unacked"] = TWICE


@pytest.mark.journey
@pytest.mark.parametrize(
    ("pool", "outcomes"),
    [
        ("threads", OUTCOMES),
        pytest.param("solo", OUTCOMES, marks=pytest.mark.nightly),
        pytest.param("prefork", OF_PROCESSES, marks=pytest.mark.nightly),
    ],
)
def test_every_outcome_settles_its_message(make_proj: MakeProj, pool: str, outcomes: dict[str, list[bool]]) -> None:
    """Rejected with requeue or retried, a task comes again; ignored, dropped or failed, it does not.

    Time limits and lost processes settle messages as the settings of their tasks say. Afterwards nothing is in a queue
    or in hand.
    """
    proj = make_proj(include=["stock_tasks"])
    worker = proj.worker(pool=pool, concurrency=3)
    sent = {name: proj.send(name).id for name in outcomes}
    sent["last"] = proj.send("record").id
    proj.await_runs(sum(map(len, outcomes.values())) + 1)
    client = proj.server.client()
    until(lambda: none_held(client) and not ready(client, "celery"))
    runs = {name: [bool(run["redelivered"]) for run in proj.runs(id=sent[name])] for name in outcomes}
    assert runs == outcomes
    assert worker.stop() == 0


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
