"""Delayed delivery goes on by itself when a primary becomes a replica, by a failover of Sentinel or in place."""

import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from kombu import Connection
from kombu.exceptions import OperationalError
from redis.sentinel import Sentinel

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.channel import connect_store
from kombu_delayq.redis import sentinel
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import stays, until
from tests.support.servers.sentinels import MASTER_NAME, Sentinels, role_of
from tests.support.workers.harness import TRANSPORT, MakeProj, Worker

OPTIONS = {"master_name": MASTER_NAME}


def _settings(url: str, transport: str | None) -> dict[str, Any]:
    return {"broker_url": url, "broker_transport": transport, "broker_transport_options": OPTIONS}


def test_killed_master_loses_nothing_that_the_replica_had(sentinels: Sentinels, make_proj: MakeProj) -> None:
    """Tasks that wait when the master is killed run once each, from the new master, without a restart."""
    proj = make_proj(sentinels.master, **_settings(sentinels.urls("delayq+sentinel"), None))
    worker = proj.worker()
    proj.send("record", "before", countdown=0.5)
    proj.await_runs(1)
    due = time.time() + 10
    expected = {proj.send("record", number, countdown=10).id for number in range(20)}
    sentinels.await_copies()
    sentinels.master.stop(signal.SIGKILL)
    sentinels.await_new_master()
    expected.add(proj.send("record", "after", countdown=1).id)
    proj.await_runs(22)
    runs = proj.runs()
    assert {run["id"] for run in runs if run["value"] != "before"} == expected
    assert set(Counter(run["id"] for run in runs).values()) == {1}
    assert all(run["at"] >= due for run in runs if isinstance(run["value"], int))
    assert worker.alive()
    assert sentinels.replica.client().zcard("delayq:{celery}:due") == 0


@pytest.mark.journey
def test_transfer_worker_follows_the_master(sentinels: Sentinels, make_proj: MakeProj) -> None:
    """A transfer worker of its own, and producers with the dotted path, follow the master when it changes."""
    url = sentinels.urls("sentinel").split(";")[0]
    proj = make_proj(sentinels.master, **_settings(url, TRANSPORT))
    with Connection(sentinels.urls("sentinel"), transport=TRANSPORT, transport_options=OPTIONS) as connection:
        channel = connection.default_channel
        transfer = TransferWorker(partial(connect_store, channel, channel.separate_pool()))
        transfer.start()
        try:
            proj.send("record", 1, countdown=0.5)
            until(lambda: sentinels.master.client().llen("celery") == 1, what="delivered by the first master")
            proj.send("record", 2, countdown=3)
            sentinels.await_copies()
            sentinels.fail_over()
            sentinels.await_new_master()
            sentinels.await_demotion()
            proj.send("record", 3, countdown=0.5)
            until(lambda: sentinels.replica.client().llen("celery") == 3, what="delivered by the new master")
        finally:
            transfer.stop()
    assert sentinels.replica.client().zcard("delayq:{celery}:due") == 0
    assert sentinels.replica.client().hlen("delayq:{celery}:bodies") == 0


def test_nobody_stays_with_a_primary_that_is_none_any_more(sentinels: Sentinels, make_proj: MakeProj) -> None:
    """After a planned failover, publisher, transfer worker and consumer are at the new primary before the old one ends.

    The old one takes writes until a Sentinel makes it a replica, some ten seconds later, and forgets them then. Here no
    Sentinel may, however long the rest takes.
    """
    proj = make_proj(sentinels.master, **_settings(sentinels.urls("delayq+sentinel"), None))
    worker = proj.worker()
    proj.send("record", "before", countdown=0.5)
    proj.await_runs(1)
    sentinels.master.client().execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
    sentinels.fail_over()
    sentinels.await_new_master()
    new = sentinels.replica.client()

    def published_there() -> bool:
        return bool(new.zscore("delayq:{celery}:due", proj.send("record", "there", countdown=1).id))

    until(published_there, what="published to the new one")
    until(lambda: proj.runs(value="there"), what="run from the new one")
    until(lambda: "blmove" in {each["cmd"] for each in new.client_list()}, what="consumed")
    assert role_of(sentinels.master) == "master"
    assert worker.alive()


def test_sentinels_that_do_not_answer_hold_up_nobody(sentinels: Sentinels) -> None:
    """Where no Sentinel answers, whoever is connected stays with its primary."""
    with Connection(sentinels.urls("delayq+sentinel"), transport_options=OPTIONS) as connection:
        channel = connection.default_channel
        assert channel.store.queues.size("q") == 0
        asked = channel.pool._named()
        for port in sentinels.ports:
            redis.Redis(port=port).execute_command("CLIENT", "PAUSE", 600_000, "ALL")
        until(lambda: asked.address() is None)
        for _ in range(50):
            assert channel.store.queues.size("q") == 0
        assert asked.address() is None


def test_a_sentinel_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever publishes waits meanwhile: it takes the word of another one, and asks the silent one no second time."""
    monkeypatch.setattr(sentinel, "ASK_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        primary = sentinel.NamedPrimary(Sentinel([("127.0.0.1", port)]), MASTER_NAME)
        assert primary.address() is None
        silent.setblocking(False)
        asked = list(iter(lambda: _accepted(silent), None))
    assert len(asked) == 1
    for connection in asked:
        connection.close()


def _accepted(server: socket.socket) -> socket.socket | None:
    with suppress(BlockingIOError):
        return server.accept()[0]
    return None


def test_transfer_worker_waits_for_no_sentinel_without_end(sentinels: Sentinels) -> None:
    """The connections of a transfer worker to the Sentinels have a timeout, as those to the master."""
    with Connection(sentinels.urls("delayq+sentinel"), transport_options=OPTIONS) as connection:
        pool: Any = connection.default_channel.separate_pool()
        nodes = pool.sentinel_manager.sentinels
        assert len(nodes) == 2
        for each in (pool, *(node.connection_pool for node in nodes)):
            assert each.connection_kwargs["socket_timeout"] == 5.0


@pytest.fixture
def peer() -> Iterator[PrivateRedis]:
    """Another server."""
    with PrivateRedis() as server:
        yield server


def _demote(server: PrivateRedis, peer: PrivateRedis) -> None:
    peer.client().replicaof("127.0.0.1", server.port)  # so that it has the data
    until(lambda: peer.client().info("replication")["master_link_status"] == "up")
    peer.client().replicaof("NO", "ONE")
    server.client().replicaof("127.0.0.1", peer.port)


def _promote(server: PrivateRedis) -> None:
    server.client().replicaof("NO", "ONE")


def _await_loss(worker: Worker) -> None:
    until(lambda: "Connection to broker lost" in worker.log, what="the worker notices")


@pytest.mark.nightly
@pytest.mark.both_layouts
@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_worker_outlives_its_primary_being_a_replica(
    make_proj: MakeProj, own_server: PrivateRedis, peer: PrivateRedis, pool: str
) -> None:
    """A worker whose Redis is demoted in place reconnects until it is primary again; what waited runs once each."""
    proj = make_proj(own_server)
    worker = proj.worker(pool=pool)
    for value in range(5):
        proj.send("record", value, countdown=2)
    _demote(own_server, peer)
    _await_loss(worker)
    stays(lambda: "Frequent restarts" not in worker.log, 3, "it pauses before it connects again")
    with pytest.raises((OperationalError, redis.ConnectionError), match="not the primary"):
        proj.send("record", "refused", countdown=1, retry=False)
    _promote(own_server)
    proj.send("record", 5, countdown=0.5)
    runs = proj.await_runs(6, timeout_s=60)
    assert Counter(run["value"] for run in runs) == Counter(range(6))
    assert worker.alive()


def test_a_worker_that_may_take_no_more_notices_refused_acks(
    make_proj: MakeProj, own_server: PrivateRedis, peer: PrivateRedis
) -> None:
    """A worker whose acks are all refused while it holds as many messages as it may reconnects, and goes on."""
    proj = make_proj(own_server, worker_prefetch_multiplier=1, task_acks_late=True, include=["stock_tasks"])
    worker = proj.worker(concurrency=1, broker_transport_options={"transfer": False})
    proj.send("gated_late", "may end", "held")
    proj.await_runs(1)
    until(lambda: own_server.client().hlen("unacked") == 1)
    own_server.client().config_set("min-replicas-to-write", 1)
    proj.journal.set("may end", 1)
    _await_loss(worker)
    own_server.client().config_set("min-replicas-to-write", 0)
    proj.send("record", "after")
    proj.await_runs(1, timeout_s=60, value="after")
    assert worker.alive()


def test_a_plain_consumer_is_told_of_a_lost_connection(own_server: PrivateRedis, peer: PrivateRedis) -> None:
    """Whoever waits in BRPOP, acks or publishes while Redis becomes a replica gets a connection error of kombu's."""
    with Connection(own_server.url, transport=TRANSPORT) as connection:
        queue = connection.SimpleQueue("q")
        queue.put("ready")
        message = queue.get(timeout=30)
        _demote(own_server, peer)
        errors = connection.connection_errors
        with pytest.raises(errors):
            message.ack()
        with pytest.raises(errors):  # a transaction, which the Redis client begins again after a lost connection
            connection.default_channel.qos.restore_by_tag(message.delivery_tag)
        with pytest.raises(errors):
            connection.drain_events(timeout=5)
        with pytest.raises(errors):
            connection.default_channel.store.queues.purge("q")
        store = connection.default_channel.store
        assert store.queues.size("q") == 0, "reading goes on"
        _promote(own_server)
        queue.put("again")
        assert connection.default_channel.client.llen("q") == 1
