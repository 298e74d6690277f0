"""Two hundred thousand ids at once, and custom ids that have no UTF-8, which stock Celery takes."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celery_ext import Call, browse, cancel, count, get, reschedule, run_now, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.chains import NOTES_WITHOUT_CHAINS
from tests.support.conditions import until
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import MakeProj, Proj

IDS, WAITING, QUEUES = 200_000, 1000, 4


#: How much of the processor's time a call takes on average, and how long the longest one keeps Redis busy where others
#: have the processor meanwhile; one call for all ids would take both a hundred times.
CALL_MS, LONGEST_CALL_MS = 2.5, 1000


LONGEST_S = 110


DAY_MS = 86_400_000


@pytest.fixture
def idle_server() -> Iterator[PrivateRedis]:
    """A server of which nobody else asks anything, which notes its longest calls."""
    with PrivateRedis("--slowlog-log-slower-than", str(LONGEST_CALL_MS * 1000)) as server:
        yield server


def _fill_queues(proj: Proj, count: int) -> list[str]:
    """Stores the tasks that wait, and returns ids with theirs among them."""
    ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(count)]
    waiting = ids[:: count // WAITING]
    eta = datetime.now(UTC) + timedelta(hours=1)
    for queue in range(QUEUES):
        fill(proj, f"q{queue}", ((each, eta) for each in waiting[queue::QUEUES]), ignore_result=True)
    return ids


def _check_calls(server: PrivateRedis) -> None:
    client = server.client()
    calls, cpu = client.info("commandstats")["cmdstat_evalsha"]["calls"], client.info("cpu")
    assert (cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1000 / calls < CALL_MS
    assert [(entry["duration"], entry["command"][:60]) for entry in client.slowlog_get()] == []


@pytest.mark.nightly
def test_two_hundred_thousand_ids_are_cancelled_in_one_call(make_proj: MakeProj, idle_server: PrivateRedis) -> None:
    """Two hundred thousand ids, most of them unknown, are cancelled in bounded time, by calls that never stop Redis.

    Where nobody uses delay chains it leaves the notes of some of the ids that did not wait, which go by themselves.
    """
    proj = make_proj(idle_server)
    ids, client = _fill_queues(proj, IDS), idle_server.client()
    before = client.info("memory")["used_memory"]
    started = time.monotonic()
    outcomes = cancel(proj.app, ids)
    assert time.monotonic() - started < LONGEST_S
    assert list(outcomes) == ids
    assert [each for each in ids if outcomes[each] == "cancelled"] == ids[:: IDS // WAITING]
    assert list(outcomes.values()).count("not_delayed") == IDS - WAITING
    assert count(proj.app) == 0
    _check_calls(idle_server)
    assert (
        NOTES_WITHOUT_CHAINS * 0.9 < client.zcard("{delayq}:cancelled") <= NOTES_WITHOUT_CHAINS
    )  # less those that waited
    assert client.info("memory")["used_memory"] - before < 200 * NOTES_WITHOUT_CHAINS + 1_000_000
    assert DAY_MS * 0.9 < client.pttl("{delayq}:cancelled") <= DAY_MS


IDS = ["\ud800", "a\udfffb", "\udc80", "\udced\udca0\udc80", "ü\ud800", '"\ud800\\']


def _ready(proj: Proj) -> list[Any]:
    return [json.loads(each)["headers"]["id"] for each in proj.server.client().lrange("celery", 0, -1)]


@pytest.mark.both_layouts
def test_a_task_of_any_id_waits_and_is_found(make_proj: MakeProj) -> None:
    """A task whose id has a lone surrogate waits, is found by it, moved and cancelled as any other."""
    proj = make_proj(result_backend=None)  # that of Redis takes no such id
    for task_id in IDS:
        _wait_and_be_found(proj, task_id)
        proj.server.client().delete("celery")


def _wait_and_be_found(proj: Proj, task_id: str) -> None:
    proj.send("record", 0, task_id=task_id)
    assert _ready(proj) == [task_id], "as on stock"
    proj.server.client().delete("celery")
    proj.send("record", 1, task_id=task_id, countdown=300)
    task = get(proj.app, task_id)
    assert task is not None
    assert task.id == task_id
    assert [each.id for each in browse(proj.app, "celery")] == [task_id]
    assert reschedule(proj.app, task_id, countdown=600) == "rescheduled"
    assert cancel(proj.app, task_id) == "cancelled"
    assert proj.delayed() == 0
    proj.send("record", 2, task_id=task_id, countdown=300)
    proj.send("record", 3, task_id=task_id, countdown=300)
    assert run_now(proj.app, [task_id]) == {task_id: "transferred"}
    assert _ready(proj) == [task_id] * 2
    send_many(proj.app, "proj.record", [Call((4,), task_id=task_id, countdown=300)])
    assert cancel(proj.app, [task_id]) == {task_id: "cancelled"}


@pytest.mark.both_layouts
def test_odd_ids_on_any_page_of_send_many(make_proj: MakeProj) -> None:
    """Such ids are stored also where their page is sent while Redis stores the one before."""
    proj = make_proj(result_backend=None)
    calls = [Call((n,), task_id=f"\ud800{n}", countdown=300) for n in range(450)]
    assert send_many(proj.app, "proj.record", calls) == 450
    assert proj.delayed() == 450


@pytest.mark.both_layouts
def test_tasks_of_odd_ids_run(make_proj: MakeProj) -> None:
    """Tasks with such ids come to their queue when they are due, each with its id."""
    proj = make_proj(result_backend=None)  # that of Redis takes no such id
    for task_id in IDS:
        proj.send("record", 1, task_id=task_id, countdown=0.5)
    with (
        proj.connection() as connection,
        connection.Consumer([connection.SimpleQueue("idle").queue], callbacks=[print]),
    ):
        until(lambda: len(_ready(proj)) == len(IDS))
    assert sorted(_ready(proj)) == sorted(IDS)
