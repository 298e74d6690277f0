"""Queues added and cancelled at run time, pools that grow and shrink, and the rest of remote control."""

from typing import Any

import pytest

from tests.support.conditions import stays, until
from tests.support.workers.consumers import held, none_held, waiting
from tests.support.workers.harness import MakeProj, Proj


def _ok(replies: list[dict[str, Any]] | None, count: int = 1) -> None:
    assert [*(answer for reply in replies or [] for answer in reply.values() if "ok" in answer)], replies
    assert len(replies or []) == count


def _consume(proj: Proj, what: str, queue: str) -> None:
    """Tells the worker to begin or to end consuming a queue, and waits until it has: it answers before."""
    _ok(getattr(proj.app.control, what)(queue, reply=True, timeout=20, limit=1))
    until(lambda: (queue in _consumed(proj)) == (what == "add_consumer"))


def _consumed(proj: Proj) -> set[str]:
    [queues] = proj.app.control.inspect(timeout=20, limit=1).active_queues().values()
    return {queue["name"] for queue in queues}


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_queue_is_cancelled_and_added_while_a_worker_waits(make_proj: MakeProj, pool: str, consume: str) -> None:
    """A worker leaves the messages of a cancelled queue to others, goes on with its other queue, and comes back."""
    proj = make_proj()
    client = proj.server.client()
    proj.worker("-Q", "one,two", pool=pool)
    proj.await_answers()
    proj.send("record", "before", queue="one")
    proj.await_runs(1)
    _consume(proj, "cancel_consumer", "one")
    for value in range(3):
        proj.send("record", value, queue="one")
    proj.send("record", "two", queue="two")
    proj.await_runs(2)
    if consume == "reliable":
        until(lambda: none_held(client))
        stays(lambda: waiting(client, "one") == [0, 1, 2] and none_held(client), 0.3)
    else:  # stock's BRPOP still gets the first one, and the worker puts it back behind the others
        until(lambda: sorted(waiting(client, "one")) == [0, 1, 2] and none_held(client))
    _consume(proj, "add_consumer", "one")
    proj.send("record", "after", queue="one")
    runs = [run["value"] for run in proj.await_runs(6)]
    assert {*runs} == {"before", "two", 0, 1, 2, "after"}
    proj.send("record", "new", queue="three")
    _consume(proj, "add_consumer", "three")
    proj.await_runs(1, value="new")
    assert _consumed(proj) == {"one", "two", "three"}
    until(lambda: none_held(client))
    assert len(proj.runs()) == 7


def test_a_queue_cancelled_amid_its_messages_leaves_the_others_to_others(make_proj: MakeProj) -> None:
    """What a worker has not begun of a cancelled queue runs once: here if it was prefetched, or elsewhere."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    proj.worker("-Q", "one,two", pool="threads", concurrency=1)
    proj.await_answers()
    for value in range(20):
        proj.send("gated_late", "gate", value, queue="one")
    until(lambda: held(client) == 4)
    _consume(proj, "cancel_consumer", "one")
    proj.journal.set("gate", 1)
    proj.send("record", "two", queue="two")
    proj.await_runs(1, value="two")
    until(lambda: none_held(client))
    here = [run["value"] for run in proj.runs(name="gated_late", passed=None)]
    left = waiting(client, "one")
    stays(lambda: waiting(client, "one") == left, 0.3)
    assert here
    assert here + left == [*range(20)]
    proj.worker("-Q", "one", pool="threads", concurrency=1)
    runs = proj.await_runs(20, name="gated_late", passed=None)
    assert [run["value"] for run in runs] == [*range(20)]


@pytest.mark.nightly
def test_a_pool_that_grows_and_shrinks_changes_what_is_held(make_proj: MakeProj) -> None:
    """With the multiplier 1 a worker holds as many messages as its pool has processes, however that changes."""
    proj = make_proj(include=["stock_tasks"], worker_prefetch_multiplier=1)
    client = proj.server.client()
    proj.worker(pool="prefork", concurrency=1)
    proj.await_answers()
    for value in range(6):
        proj.send("gated_late", "first", value)
    until(lambda: held(client) == 1)
    _ok(proj.app.control.pool_grow(2, reply=True, timeout=20, limit=1))
    until(lambda: held(client) == 3 and len(proj.runs()) == 3)
    stays(lambda: held(client) == 3 and waiting(client) == [3, 4, 5], 0.5)
    proj.journal.set("first", 1)
    proj.await_runs(12)
    until(lambda: none_held(client))
    _ok(proj.app.control.pool_shrink(2, reply=True, timeout=20, limit=1))
    for value in range(4):
        proj.send("gated_late", "second", value)
    until(lambda: held(client) == 1 and len(proj.runs()) == 13)
    stays(lambda: held(client) == 1 and waiting(client) == [1, 2, 3], 0.5)
    proj.journal.set("second", 1)
    proj.await_runs(20)
    until(lambda: none_held(client))
