"""The main job, from ``apply_async`` to the task: countdowns, retries, and the order of what is due together."""

import time
from itertools import pairwise
from typing import Any

import pytest

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.servers.proxies import CountsRequests
from tests.support.workers.harness import MakeProj, Proj

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]


@pytest.mark.journey
def test_countdown_waits_in_redis_and_runs_once_not_early(proj: Proj) -> None:
    """A task with a countdown waits in Redis, not in the worker, and runs once, not before its time."""
    proj.worker()
    due = time.time() + 5
    sent = proj.send("record", "x", countdown=5)
    assert proj.lengths() == (1, 1)
    [run] = proj.await_runs(1)
    assert run["id"] == sent.id
    assert run["at"] >= due
    assert not proj.server.client().exists(*proj.keys())


def test_publishing_with_a_countdown_costs_one_round_trip(broker: PrivateRedis, make_proj: MakeProj) -> None:
    """Each ``apply_async`` with a countdown sends once to Redis, as one without does."""
    with CountsRequests(broker.port) as proxy:
        proj = make_proj(broker_url=proxy.url)
        for options in ({"countdown": 600}, {}):
            for _ in range(3):  # opens connections, declares the queue, loads the script
                proj.send("record", ignore_result=True, **options)
            before = proxy.requests
            for _ in range(20):
                proj.send("record", ignore_result=True, **options)
            assert proxy.requests - before == 20


def _held_by_worker(proj: Proj) -> list[Any]:
    """Returns what the worker has of the task: scheduled, reserved, running, or not acknowledged."""
    inspect = proj.app.control.inspect(destination=[proj.workers[0].node], timeout=30)
    held: list[Any] = proj.server.client().hkeys("unacked")
    for replies in (inspect.scheduled(), inspect.reserved(), inspect.active()):
        assert replies, "the worker does not answer"
        told = [task.get("request", task) for tasks in replies.values() for task in tasks]
        held += [task for task in told if task["hostname"] != "broker"]
    return held


@pytest.mark.journey
def test_each_retry_waits_in_redis_and_runs_once(proj: Proj) -> None:
    """A task that is retried waits in Redis and nowhere else, comes when its countdown is over, and then succeeds."""
    proj.worker(concurrency=1)
    far = proj.send("flaky", 2, countdown=0, kwargs={"countdown": 3600})
    until(lambda: proj.delayed() == 1)
    until(lambda: not _held_by_worker(proj))
    assert len(proj.runs()) == 1
    assert far.state == "RETRY"

    sent = proj.send("flaky", 2, countdown=0, kwargs={"countdown": 1})
    assert sent.get(timeout=60) == 2
    runs = proj.runs(id=sent.id)
    assert [run["retries"] for run in runs] == [0, 1, 2]
    for before, after in pairwise(runs):
        assert after["at"] >= before["at"] + 1
    assert len(proj.runs(id=far.id)) == 1
    assert proj.delayed() == 1


def _soon(delay_s: float = 2) -> float:
    return time.time() + delay_s


def _iso(due: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(due)) + f".{int(due % 1 * 1e6):06d}+00:00"


def test_tasks_due_in_the_same_instant_run_as_they_were_published(proj: Proj) -> None:
    """Tasks with one eta run in the order of publishing, those of a higher priority first; none is early."""
    proj.worker(pool="solo")
    due = _soon(4)
    # More than one batch, and sent at once: each has to be there before it is due.
    send_many(proj.app, "proj.record", [Call((n,), eta=_iso(due)) for n in range(250)])
    proj.await_runs(250)  # those that are urgent would overtake them
    later = _soon(4)
    for numbers, priority in ((range(250, 270), 9), (range(270, 290), 0)):
        send_many(proj.app, "proj.record", [Call((n,), eta=_iso(later)) for n in numbers], priority=priority)
    runs = proj.await_runs(290)
    assert [run["value"] for run in runs] == [*range(250), *range(270, 290), *range(250, 270)]
    assert all(run["at"] >= (due if run["value"] < 250 else later) for run in runs)
