"""Two hundred thousand ids at once."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from celery_ext import cancel, count
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.chains import NOTES_WITHOUT_CHAINS
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
