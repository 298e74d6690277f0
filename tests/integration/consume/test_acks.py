"""Acknowledgements: late ones, those of many threads, and messages that are due beyond the visibility timeout."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kombu
import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume.acks import Acks
from kombu_delayq.redis import RedisCommands
from kombu_delayq.store import DelayStore, Requeued
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import KEYS, in_hand
from tests.support.workers.visibility import sweep, swept_after

pytestmark = pytest.mark.wide

VISIBILITY_S = 4


#: What brings messages of a dead worker back after ``VISIBILITY_S``: kombu's sweep by the next worker, and by those
#: that live.
SWEPT = {"visibility_timeout": VISIBILITY_S}


SWEEPING = {**SWEPT, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def _all_acked(proj: Proj) -> bool:
    client = proj.server.client()
    return not (in_hand(client) or client.llen("celery") or proj.delayed())


def _redelivered_after_a_kill(proj: Proj) -> None:
    """Kills the worker that runs the task, and checks that the task runs once more, in another one."""
    due = time.time() + 1
    sent = proj.send("gated_late", "gate", "x", countdown=1)
    [first] = proj.await_runs(1)
    for worker in proj.workers:
        if worker.process.pid == first["pid"]:
            worker.kill()
    proj.journal.set("gate", 1)
    if len(proj.workers) == 1:
        until(lambda: time.time() > first["at"] + VISIBILITY_S)
        proj.worker(pool="solo")  # kombu sweeps at the start
    assert sent.get(timeout=60) == "x"
    [first, second] = proj.runs(value="x")
    assert due <= first["at"] < second["at"]
    assert first["pid"] != second["pid"]
    assert (first["redelivered"], second["redelivered"]) == (False, True)
    assert until(lambda: _all_acked(proj))


@pytest.mark.skipif(kombu.VERSION < (5, 7), reason="kombu before 5.7 sweeps every 100 s, whatever is set")
def test_a_killed_workers_task_is_redelivered_by_the_sweep(make_proj: MakeProj) -> None:
    """With ``acks_late`` a living worker takes over the task of a killed one after the visibility timeout, once."""
    proj = make_proj(broker_transport_options=SWEEPING, include=["stock_tasks"])
    for worker in [proj.worker(pool="solo", wait=False) for _ in range(2)]:
        worker.ready()
    _redelivered_after_a_kill(proj)


def test_rejected_and_lost_tasks_come_again_without_their_countdown(proj: Proj) -> None:
    """What is rejected with requeue, or ran in a pool process that died, comes again at once; other rejects do not."""
    proj.worker(concurrency=1)
    due = time.time() + 1
    sent = {
        "requeued": proj.send("reject_once", True, countdown=1),
        "dropped": proj.send("reject_once", False, countdown=1),
        "lost": proj.send("die_once", countdown=1),
    }
    proj.await_runs(5)
    until(lambda: _all_acked(proj))
    runs = {name: proj.runs(id=result.id) for name, result in sent.items()}
    assert {name: [run["redelivered"] for run in of_one] for name, of_one in runs.items()} == {
        "requeued": [False, True],
        "dropped": [False],
        "lost": [False, True],
    }
    assert all(of_one[0]["at"] >= due for of_one in runs.values())
    with proj.connection() as connection:
        counts = connection.default_channel.store.figures.counts(["celery"])["celery"]
    assert counts.transferred == 3, "none waited again"
    assert sent["lost"].get(timeout=30) is None


THREADS = 20


def test_many_threads_need_one_connection(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Threads that acknowledge while Redis is slow wait for each other, where a connection each would be too many."""
    tags = [f"host:1:abc.{number}" for number in range(THREADS)]
    unacked, index = KEYS.unacked("orders"), KEYS.unacked_index("orders")
    client.hset(unacked, mapping=dict.fromkeys(tags, "[]"))
    client.zadd(index, dict.fromkeys(tags, 1))
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=1)
    group = KEYS.slot_group("orders")
    store, acks = DelayStore(redis.Redis(connection_pool=pool), KEYS), Acks(dict.fromkeys(tags, "orders"), group)

    def acknowledge(tag: str) -> None:
        acks.add(tag)
        acks.send(store)

    client.client_pause(300)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(acknowledge, tags))
    until(lambda: not client.exists(unacked, index), what="all are acknowledged")
    pool.disconnect()


@pytest.mark.parametrize("most", [1, 3])
def test_many_threads_give_messages_back(redis_server: PrivateRedis, client: redis.Redis, most: int) -> None:
    """So do threads that reject their messages at once: none stays in hand, however few connections the pool has."""
    messages = [Requeued(f"host:1:abc.{number}", "orders", 0, f"{number}".encode()) for number in range(THREADS)]
    client.hset(KEYS.unacked("orders"), mapping=dict.fromkeys((each.tag for each in messages), "[]"))
    client.zadd(KEYS.unacked_index("orders"), dict.fromkeys((each.tag for each in messages), 1))
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=most)
    store = DelayStore(redis.Redis(connection_pool=pool), KEYS)
    client.client_pause(300)
    with ThreadPoolExecutor(THREADS) as threads:
        assert not any(threads.map(lambda each: store.fetching.requeue([each], "last"), messages))
    assert client.llen("orders") == THREADS
    client.client_pause(300)
    with ThreadPoolExecutor(THREADS) as threads:
        asked = threads.map(lambda each: RedisCommands(store.client).ask_once("LPUSH", "others", each.tag), messages)
        assert sorted(asked) == [*range(1, THREADS + 1)]
    pool.disconnect()


#: Longer than a worker on a busy machine takes from getting a message to acknowledging it.
SHORT_S = 5


COUNTDOWN_S = 8


WORKERS = 3


def _run_beyond_the_visibility_timeout(proj: Proj) -> list[dict[str, Any]]:
    """Runs a task long after the visibility timeout, and returns its runs in the seconds after its due time."""
    for worker in [proj.worker(pool="solo", wait=False) for _ in range(WORKERS)]:
        worker.ready()
    due = time.time() + COUNTDOWN_S
    proj.send("record", countdown=COUNTDOWN_S)

    def is_over() -> bool:
        sweep(proj)
        return time.time() > due + SHORT_S

    until(is_over, COUNTDOWN_S + SHORT_S + 5)
    runs = proj.await_runs(1)
    assert all(run["at"] >= due for run in runs)
    return runs


def test_a_task_due_beyond_the_visibility_timeout_runs_once(make_proj: MakeProj) -> None:
    """With our transport a task whose countdown is longer than the visibility timeout runs once."""
    proj = make_proj(broker_transport_options=swept_after(SHORT_S))
    assert len(_run_beyond_the_visibility_timeout(proj)) == 1
