"""How many messages a worker holds: the prefetch multiplier, its end, and rate limits."""

import pytest
from celery.app.defaults import NAMESPACES

from tests.support.conditions import stays, until
from tests.support.workers.consumers import held, in_hand, none_held, ready, waiting
from tests.support.workers.harness import MakeProj, Proj


def _most_unfinished(proj: Proj, count: int, noted: str = "passed") -> int:
    """Waits until ``count`` tasks are finished. Returns the most messages of unfinished ones that were held at a time.

    A message of a finished task may be held for a moment longer.

    Args:
        proj: The app.
        count: How many tasks finish.
        noted: What a task notes when it is about to finish.
    """
    client = proj.server.client()
    seen = [0]

    def done() -> bool:
        held_now = {*in_hand(client)}
        finished = {run[noted] for run in proj.runs() if noted in run}
        seen.append(len(held_now - finished))
        return len(finished) >= count

    until(done, 60)
    until(lambda: none_held(client))
    return max(seen)


@pytest.mark.parametrize(
    ("pool", "multiplier"), [("threads", 4), pytest.param("prefork", 1, marks=pytest.mark.journey), ("solo", 4)]
)
def test_a_worker_holds_what_its_prefetch_multiplier_allows(make_proj: MakeProj, pool: str, multiplier: int) -> None:
    """Of many tasks a worker holds its processes times the multiplier, and never more."""
    proj = make_proj(include=["stock_tasks"], worker_prefetch_multiplier=multiplier)
    client = proj.server.client()
    limit = multiplier * (1 if pool == "solo" else 2)
    for value in range(3 * limit):
        proj.send("gated_late", "gate", value)
    proj.worker(*(("-c", "1") if pool == "solo" else ()), pool=pool)
    if pool == "solo":  # on stock it runs each task as it comes
        proj.await_runs(1)
    else:
        until(lambda: held(client) == limit)
    stays(lambda: held(client) <= limit, 0.3)
    proj.journal.set("gate", 1)
    assert _most_unfinished(proj, 3 * limit) <= limit
    values = [run["passed"] for run in proj.runs() if "passed" in run]
    assert values == [*range(3 * limit)] if pool == "solo" else sorted(values) == [*range(3 * limit)]


def test_a_solo_worker_acknowledges_a_task_while_it_runs_the_next(make_proj: MakeProj) -> None:
    """While a task runs for long, no message of a task before it is held: a worker that is killed repeats none.

    However short the task before it was.
    """
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    proj.journal.mset({"gate 0": 1, "gate 2": 1})
    for value in range(4):
        proj.send("gated_late", f"gate {value}", value)
    proj.worker(pool="solo")
    for value in (1, 3):
        proj.await_runs(1, value=value)
        until(lambda value=value: min(in_hand(client)) == value)
        proj.journal.set(f"gate {value}", 1)
    until(lambda: none_held(client))


def test_a_worker_without_a_multiplier_holds_everything(make_proj: MakeProj) -> None:
    """With the multiplier 0 a worker takes all that is there, and what comes while it is busy."""
    proj = make_proj(include=["stock_tasks"], worker_prefetch_multiplier=0)
    client = proj.server.client()
    for value in range(30):
        proj.send("gated_late", "gate", value)
    worker = proj.worker(pool="threads")
    until(lambda: held(client) == 30)
    for value in range(30, 40):
        proj.send("gated_late", "gate", value)
    until(lambda: held(client) == 40)
    assert ready(client, "celery") == []
    proj.journal.set("gate", 1)
    proj.await_runs(80)
    until(lambda: none_held(client))
    assert worker.stop() == 0


@pytest.mark.skipif("disable_prefetch" not in NAMESPACES["worker"], reason="this Celery has no such setting")
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_that_does_not_prefetch_holds_what_it_runs(make_proj: MakeProj, pool: str) -> None:
    """With ``worker_disable_prefetch`` all messages but those of running tasks are in the queue."""
    proj = make_proj(include=["stock_tasks"], worker_disable_prefetch=True)
    client = proj.server.client()
    for value in range(10):
        proj.send("gated_late", "first" if value < 2 else "all", value)
    proj.worker(pool=pool)
    proj.await_runs(2)
    until(lambda: held(client) == 2)
    stays(lambda: held(client) == 2 and len(ready(client, "celery")) == 8, 0.5)
    proj.journal.set("first", 1)
    # Two have passed and are acknowledged, which a thread does only after others know that it is free; two have begun.
    until(lambda: len(proj.runs()) == 6 and held(client) == 2)
    stays(lambda: held(client) == 2 and len(ready(client, "celery")) == 6, 0.5)
    proj.journal.set("all", 1)
    assert _most_unfinished(proj, 10) <= 2


def test_tasks_that_a_rate_limit_holds_back_return_with_the_worker(make_proj: MakeProj, consume: str) -> None:
    """A worker that ends puts back, in order, what waits for a rate limit; other tasks have run meanwhile."""
    proj = make_proj(include=["stock_tasks"], worker_prefetch_multiplier=4)
    client = proj.server.client()
    worker = proj.worker(pool="threads", concurrency=2)
    for value in range(6):
        proj.send("rare", value)
    proj.await_runs(1, name="rare")
    until(lambda: held(client) == 5)
    proj.send("record", "other")
    proj.await_runs(1, value="other")
    assert worker.stop() == 0
    [ran] = proj.runs(name="rare")
    back, expected = waiting(client), [value for value in range(6) if value != ran["value"]]
    assert back == expected if consume == "reliable" else sorted(back) == expected
    assert none_held(client)
