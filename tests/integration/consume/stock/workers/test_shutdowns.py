"""Warm, soft and cold shutdown: what was begun, and where the rest of the messages is afterwards."""

import signal
from importlib.util import find_spec
from typing import Any

import pytest
import redis

from tests.support.conditions import until
from tests.support.workers.consumers import held, none_held, waiting
from tests.support.workers.harness import MakeProj, Proj, Worker

needs_eventlet = pytest.mark.skipif(not find_spec("eventlet"), reason="eventlet is not installed")


def _busy_worker(proj: Proj, task: str, count: int, **conf: Any) -> Worker:
    """Starts a worker of one process, and sends tasks that it can neither end nor all hold. The first has begun."""
    for value in range(count):
        proj.send(task, "gate", value)
    worker = proj.worker(concurrency=1, **conf)
    proj.await_runs(1)
    until(lambda: held(proj.server.client()) >= 4)
    return worker


def _in_order(found: list[Any], expected: list[Any], consume: str) -> bool:
    """Whether messages are in their order; stock turns the order of those that were held round."""
    return found == expected if consume == "reliable" else sorted(found) == expected


def _await_given_back(client: redis.Redis) -> None:
    """Waits until workers hold nothing. Under load, Celery's prefork pool may wait for a child for ever after that."""
    until(lambda: none_held(client), what="all given back")


@pytest.mark.parametrize("task", ["gated", pytest.param("gated_late", marks=pytest.mark.journey)])
def test_a_warm_shutdown_ends_what_runs_and_puts_back_the_rest(make_proj: MakeProj, consume: str, task: str) -> None:
    """With SIGTERM the running task ends, takes none with it, and all others are next in their queue, in order."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    worker = _busy_worker(proj, task, 10)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "Warm shutdown" in worker.log)
    proj.send(task, "gate", 10)
    proj.journal.set("gate", 1)
    assert worker.process.wait(60) == 0
    begun = {run["value"] for run in proj.runs(passed=None)}
    assert begun == {0}
    assert _in_order(waiting(client), [*range(1, 11)], consume)
    assert none_held(client)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_warm_shutdown_of_other_pools_loses_nothing(make_proj: MakeProj, pool: str) -> None:
    """With SIGTERM threads run what they hold; what is neither run nor running is in the queue."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    for value in range(10):
        proj.send("gated_late", "gate", value)
    worker = proj.worker(pool=pool, concurrency=1)
    proj.await_runs(1)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "Warm shutdown" in worker.log)
    proj.journal.set("gate", 1)
    assert worker.process.wait(60) == 0
    ran = [run["value"] for run in proj.runs(passed=None)]
    assert len(ran) < 10
    assert sorted(ran + waiting(client)) == [*range(10)]
    assert none_held(client)


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_a_worker_that_waits_leaves_nothing_when_it_ends(make_proj: MakeProj, count: int) -> None:
    """Idle workers end at once; what comes at the very moment is in the queue or has run."""
    proj = make_proj()
    client = proj.server.client()
    workers = [proj.worker("-Q", "one,two", pool="threads", wait=False) for _ in range(count)]
    for worker in workers:
        worker.ready()
    for value in range(20 * count):
        proj.send("record", value, queue="one")
        if value % 20 == 10:
            workers[value // 20].process.terminate()
    for worker in workers:
        assert worker.process.wait(60) == 0
    ran = [run["value"] for run in proj.runs()]
    assert sorted(ran + waiting(client, "one")) == [*range(20 * count)]
    assert none_held(client)


@pytest.mark.parametrize("signum", [signal.SIGQUIT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_a_soft_shutdown_puts_back_what_does_not_end_in_time(
    make_proj: MakeProj, consume: str, signum: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ``worker_soft_shutdown_timeout`` the running task and all others are next in their queue, in order."""
    if signum == signal.SIGTERM:
        monkeypatch.setenv("REMAP_SIGTERM", "SIGQUIT")
    proj = make_proj(include=["stock_tasks"], worker_soft_shutdown_timeout=1)
    client = proj.server.client()
    worker = _busy_worker(proj, "gated_late", 10)
    worker.process.send_signal(signum)
    _await_given_back(client)
    assert "Initiating Soft Shutdown" in worker.log
    assert _in_order(waiting(client), [*range(10)], consume)
    assert none_held(client)
    assert len(proj.runs()) == 1


@pytest.mark.parametrize("task", ["gated", "gated_late"])
def test_a_cold_shutdown_puts_back_all_that_is_not_acknowledged(make_proj: MakeProj, consume: str, task: str) -> None:
    """With SIGQUIT the running task is ended; it goes back if it is acknowledged late, as do all that had not begun."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    worker = _busy_worker(proj, task, 10)
    worker.process.send_signal(signal.SIGQUIT)
    _await_given_back(client)
    assert _in_order(waiting(client), [*range(0 if task == "gated_late" else 1, 10)], consume)
    assert none_held(client)
    assert len(proj.runs()) == 1


@pytest.mark.parametrize("pool", ["gevent", pytest.param("eventlet", marks=[needs_eventlet, pytest.mark.nightly])])
def test_a_cold_shutdown_of_a_green_pool_puts_back_what_runs(make_proj: MakeProj, pool: str) -> None:
    """With SIGQUIT a running task that is acknowledged late goes back, although the pool calls it a success."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    proj.send("gated_late", "gate", 1)
    worker = proj.worker(pool=pool, concurrency=2)
    proj.await_runs(1)
    worker.process.send_signal(signal.SIGQUIT)
    worker.process.wait(60)
    assert waiting(client) == [1]
    assert none_held(client)


@pytest.mark.parametrize("task", ["gated", "gated_late"])
def test_a_cold_shutdown_of_a_solo_pool_puts_back_what_runs(make_proj: MakeProj, task: str) -> None:
    """With SIGQUIT a running task that is acknowledged late goes back, and one that is acknowledged does not."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    for value in range(2):
        proj.send(task, "gate", value)
    worker = proj.worker(pool="solo")
    proj.await_runs(1)
    worker.process.send_signal(signal.SIGQUIT)
    worker.process.wait(60)
    assert waiting(client) == ([0, 1] if task == "gated_late" else [1])
    assert none_held(client)
