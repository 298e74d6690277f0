"""What becomes of a message when its task is rejected, ignored, fails, takes too long or loses its process."""

import celery
import pytest

from tests.support.conditions import until
from tests.support.workers.consumers import none_held, ready
from tests.support.workers.harness import MakeProj, Proj

#: What each task does at each of its runs: whether its message was redelivered.
ONCE, TWICE = [False], [False, True]


def _check(proj: Proj, outcomes: dict[str, list[bool]]) -> None:
    """Sends a task of each name, and checks its runs; afterwards nothing is in a queue or in hand."""
    sent = {name: proj.send(name).id for name in outcomes}
    sent["last"] = proj.send("record").id
    proj.await_runs(sum(map(len, outcomes.values())) + 1)
    client = proj.server.client()
    until(lambda: none_held(client) and not ready(client, "celery"))
    runs = {name: [bool(run["redelivered"]) for run in proj.runs(id=sent[name])] for name in outcomes}
    assert runs == outcomes


@pytest.mark.journey
@pytest.mark.parametrize("pool", ["threads", pytest.param("solo", marks=pytest.mark.nightly)])
def test_every_outcome_settles_its_message(make_proj: MakeProj, pool: str) -> None:
    """Rejected with requeue or retried, a task comes again; ignored, dropped or failed, it does not."""
    proj = make_proj(include=["stock_tasks"])
    worker = proj.worker(pool=pool)
    _check(
        proj,
        {
            **dict.fromkeys(("requeued",), TWICE),
            **dict.fromkeys(("dropped", "ignored", "fail", "fail_unacked"), ONCE),
            "again": [False, False],
        },
    )
    assert worker.stop() == 0


@pytest.mark.nightly
def test_every_outcome_of_a_process_settles_its_message(make_proj: MakeProj) -> None:
    """Time limits and lost processes settle messages as the settings of their tasks say."""
    proj = make_proj(include=["stock_tasks"])
    worker = proj.worker(concurrency=3)
    outcomes = {
        **dict.fromkeys(("requeued", "die_at_first"), TWICE),
        **dict.fromkeys(("dropped", "ignored", "fail", "fail_unacked", "too_long", "softly", "die"), ONCE),
        "again": [False, False],
    }
    if celery.VERSION >= (5, 7):  # before, such a message stayed in hand until the worker ended
        outcomes["too_long_unacked"] = TWICE
    _check(proj, outcomes)
    assert worker.stop() == 0
