"""Connections of a process: how few are enough, and that what is closed leaves none, without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from kombu import Connection, Queue

import celery_ext
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.broker import Broker
from kombu_delayq.channel import connect_store
from kombu_delayq.publish_batch import PutAhead
from kombu_delayq.redis import sentinel
from kombu_delayq.store.types import Offer, PageId
from tests.support.conditions import until
from tests.support.servers.sentinels import MASTER_NAME, PATIENT_MS, Sentinels
from tests.support.workers.harness import TRANSPORT, MakeProj


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections(port: int) -> int:
    """Counts the connections to a server that are neither this test's own nor those of Sentinels and replicas."""
    with redis.Redis(port=port) as admin:
        own = admin.client_id()
        return sum(
            each["id"] != str(own) and not each["name"].startswith("sentinel-") and "S" not in each["flags"]
            for each in admin.client_list()
        )


@pytest.mark.parametrize("scheme", ["redis", "delayq"])
def test_a_store_of_spark_that_is_closed_leaves_no_connection(own_server: PrivateRedis, scheme: str) -> None:
    """A broker of Spark has one connection while its store is used, and none when it is closed."""
    url = own_server.url.replace("redis", scheme, 1)
    until(lambda: connections(own_server.port) == 0)
    for _ in range(3):
        store = Broker.of(url, None, {}).connect()
        store.scan.count("q")
        assert connections(own_server.port) == 1
        store.close()
        until(lambda: connections(own_server.port) == 0, what="closed")


def test_a_consumer_that_waits_leaves_no_connection_when_it_is_closed(own_server: PrivateRedis) -> None:
    """A worker closes channels that it has consumed by without a cancel, such as when its subscription breaks."""
    with Connection(own_server.url, transport=TRANSPORT, transport_options={"transfer": False}) as connection:
        channel: Any = connection.default_channel
        connection.Consumer([Queue("q")], callbacks=[lambda *_: None]).consume()

        def waits() -> bool:
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.1)
            return any(each["cmd"] == "blmove" for each in own_server.client().client_list())

        until(waits)
    until(lambda: connections(own_server.port) == 0, what="closed")
    assert channel.closed


def test_connections_of_ones_own_behind_sentinel_are_all_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of our own leave the channel its Sentinels, and are closed with their connections to the Sentinels."""
    monkeypatch.setattr(sentinel, "ASK_S", 3600.0)  # over one more connection, which is of the process
    with Sentinels(down_after_ms=PATIENT_MS) as sentinels:
        ports = [sentinels.master.port, *sentinels.ports]
        options = {"master_name": MASTER_NAME}
        url = sentinels.urls("delayq+sentinel")
        with Connection(url, transport=TRANSPORT, transport_options=options) as connection:
            channel: Any = connection.default_channel
            channel.store.queues.size("q")
            managers = {name: each for name, each in vars(channel).items() if name.endswith("sentinel_manager")}
            before = [connections(port) for port in ports]
            for pool in (channel.separate_pool(), channel.own_pool()):
                store = connect_store(channel, pool)
                store.delivery.offer("q", Offer("i", "+60000", 0, "{}"))
                until(lambda: sum(map(connections, ports)) > sum(before), what="connected")
                store.close()
                until(lambda: [connections(port) for port in ports] == before, what="closed")
            ahead = PutAhead(channel, "q")
            ahead.put(PageId("s", 1), [Offer("j", "+60000", 0, "{}")])
            ahead.confirm()
            ahead.close()
            until(lambda: [connections(port) for port in ports] == before, what="closed")
            assert managers == {name: vars(channel)[name] for name in managers}


def test_kombus_commands_share_a_client_until_the_pool_is_another(own_server: PrivateRedis) -> None:
    """A channel makes no client for each message, but one for each pool: after a fork, kombu has another."""
    with Connection(own_server.url, transport=TRANSPORT) as connection:
        channel: Any = connection.default_channel
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
        channel._after_fork()
        with channel.conn_or_acquire() as other:
            assert other.ping()
            assert (other is first, other.connection_pool is channel.pool) == (False, True)


@pytest.mark.nightly
@pytest.mark.both_layouts
def test_one_connection_a_pool_is_enough(make_proj: MakeProj) -> None:
    """With ``max_connections`` 1, which bounds kombu's pools, delayed tasks are delivered, retried, found and sent."""
    proj = make_proj(broker_transport_options={"max_connections": 1})
    worker = proj.worker()
    proj.send("record", "waits", countdown=1)
    proj.send("flaky", 1, 1)
    proj.await_runs(3)

    calls = (celery_ext.Call(args=(n,)) for n in range(1000))
    assert celery_ext.send_many(proj.app, "proj.record", calls, countdown=3600) == 1000
    far = proj.send("record", "far", countdown=3600)
    assert celery_ext.cancel(proj.app, [far.id]) == {far.id: "cancelled"}
    assert sum(1 for _ in celery_ext.select(proj.app, queues="celery")) == 1000
    until(lambda: proj.server.client().hlen("unacked") == 0)
    assert "Redis cannot be used" not in worker.log
    assert worker.stop() == 0
