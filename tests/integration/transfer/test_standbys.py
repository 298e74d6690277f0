"""Standbys, which deliver what a dead or silent leader leaves, and ask Redis for little."""

import json
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from subprocess import Popen

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer
from tests.support.conditions import stays, until
from tests.support.servers.monitor import Monitor
from tests.support.workers.held import KEYS
from tests.support.workers.standalone import Standalone, await_lease, lease_holder
from tests.support.workers.transfers import QUEUE, arrived, commands_of_look, listeners, offer

#: More than any test here takes: no poll delivers anything, and nobody takes over the lease.
RARE_POLLS = {"poll_interval": 60.0, "lease_ttl": 600.0}
LATE_S = 30.0
#: The commands of a look at who consumes.
OF_CONSUMERS = {"TIME", "HGETALL", "ZRANGE", f"EVALSHA {scripts.load('watched').sha}"}
#: Queues that are known before the first poll, which is when channels in Redisson's layout are subscribed to.
QUEUES = [QUEUE, *(f"queue{n}" for n in range(20))]

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]


@pytest.fixture
def store(client: redis.Redis, layout: str) -> DelayStore:
    """Keeps messages on a database whose transfer workers know the queues already, as a message waits in each."""
    store = DelayStore(client, KEYS, options=Options(layout=layout))
    for queue in QUEUES:
        offer(store, "far", 86_400, queue)
    return store


@pytest.fixture
def workers(redis_server: PrivateRedis, store: DelayStore, layout: str, standalone: Standalone) -> "list[Popen[bytes]]":
    """A leader and its two standbys, all of which listen."""
    processes = []
    for rank in (1, 2, 3):
        processes.append(standalone(redis_server, layout=layout, transfer_batch=10, **RARE_POLLS))
        await_lease(redis_server, processes[-1], rank)
    until(lambda: listeners(store.client, layout) == 3)
    return processes


def kill(processes: "Iterable[Popen[bytes]]") -> None:
    """SIGKILL."""
    for process in processes:
        process.kill()
        process.wait(10)


def test_a_leader_that_hangs_is_stood_in_for(store: DelayStore, workers: "list[Popen[bytes]]") -> None:
    """A standby delivers for a leader whose process stands still with its connections open, and leaves it the rest."""
    workers[0].send_signal(signal.SIGSTOP)
    try:
        for n in range(10):
            offer(store, str(n), n / 20)
        until(lambda: len(arrived(store.client)) == 10, LATE_S)
    finally:
        workers[0].send_signal(signal.SIGCONT)
    kill(workers[1:])
    offer(store, "later", 0.1)
    until(lambda: arrived(store.client)["later"] == 1, LATE_S)
    assert set(arrived(store.client).values()) == {1}


def test_a_burst_that_a_dead_leader_leaves_is_delivered(store: DelayStore, workers: "list[Popen[bytes]]") -> None:
    """Many batches of messages that are due in the same instant leave without a poll, from many queues."""
    due_ms = (time.time() + 1.5) * 1000
    for queue in QUEUES:
        store.delivery.offer(queue, *(Offer(str(n), repr(due_ms), 0, json.dumps(str(n))) for n in range(100)))
    kill(workers[:1])
    for queue in QUEUES:
        until(lambda: len(arrived(store.client, queue)) == 100, LATE_S)  # noqa: B023
        assert set(arrived(store.client, queue).values()) == {1}


def test_commands_are_few_however_many_heads_are_announced(
    redis_server: PrivateRedis, store: DelayStore, workers: "list[Popen[bytes]]", layout: str
) -> None:
    """Of heads in hundreds of queues that leave in time, a standby learns with at most 25 looks a second."""
    standbys = [str(process.pid) for process in workers[1:]]
    kill(workers[:1])  # nothing is there to be transferred
    keys, queues = KEYS, QUEUES if layout == "redisson" else [f"queue{n}" for n in range(300)]
    with Monitor(redis_server) as monitor:
        before, begun = [monitor.commands(name).total() for name in standbys], time.monotonic()
        while time.monotonic() < begun + 3:
            with store.client.pipeline(transaction=False) as pipe:
                for queue in queues:
                    due_ms = repr(time.time() * 1000)
                    channel, text = (
                        (RedissonKeys(keys).channel(queue), due_ms)
                        if layout == "redisson"
                        else (keys.wake, f"{due_ms} {queue}")
                    )
                    pipe.publish(channel, text)
                pipe.execute()
        until(lambda: all(monitor.commands(name).total() for name in standbys))
        took_s = time.monotonic() - begun
        sent = [monitor.commands(name).total() - count for name, count in zip(standbys, before, strict=True)]
    assert all(0 < count <= 25 * commands_of_look(len(queues)) * took_s for count in sent)


def test_an_idle_standby_asks_for_nothing_between_polls(
    redis_server: PrivateRedis, store: DelayStore, workers: "list[Popen[bytes]]"
) -> None:
    """While messages are announced that are due far away, a standby looks at consumers alone once it has begun."""
    with Monitor(redis_server, left_out=OF_CONSUMERS) as monitor:

        def sent() -> int:
            return sum(monitor.commands(str(worker.pid)).total() for worker in workers[1:])

        def has_begun() -> bool:
            before = sent()
            with suppress(AssertionError):
                stays(lambda: sent() == before, 1.0)
            return sent() == before

        until(has_begun)
        before = sent()
        for n in range(50):
            offer(store, str(n), 3000 - n)
        stays(lambda: sent() == before, 1.0)


def test_a_standby_that_may_not_listen_polls(own_server: PrivateRedis, standalone: Standalone, layout: str) -> None:
    """Where an ACL forbids the channels, standbys deliver for a dead leader by their polls."""
    own_server.client().execute_command("ACL", "SETUSER", "default", "resetchannels")
    store = DelayStore(own_server.client(), KEYS, options=Options(layout=layout))
    store.queues.know(QUEUE)
    workers = []
    for rank in (1, 2):
        workers.append(standalone(own_server, layout=layout, poll_interval=0.2, lease_ttl=600.0))
        await_lease(own_server, workers[-1], rank)
    kill(workers[:1])
    for n in range(5):
        offer(store, str(n), n / 10)
    until(lambda: len(arrived(store.client)) == 5, LATE_S)
    assert set(arrived(store.client).values()) == {1}
    assert lease_holder(own_server) == workers[0].pid
