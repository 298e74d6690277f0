"""Delayed delivery behind Sentinel goes on by itself after a failover."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis
from kombu import Connection

from kombu_delayq.channel import connect_store
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.servers.sentinels import MASTER_NAME, Sentinels
from tests.support.workers.harness import TRANSPORT, MakeProj

OPTIONS = {"master_name": MASTER_NAME}


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    with Sentinels() as running:
        yield running


def _settings(url: str, transport: str | None) -> dict[str, Any]:
    return {"broker_url": url, "broker_transport": transport, "broker_transport_options": OPTIONS}


def test_killed_master_loses_nothing_that_the_replica_had(sentinels: Sentinels, make_proj: MakeProj) -> None:
    """Tasks that wait when the master is killed run once each, from the new master, without a restart."""
    proj = make_proj(sentinels.master, **_settings(sentinels.urls("delayq+sentinel"), None))
    worker = proj.worker()
    proj.send("record", "before", countdown=0.5)
    proj.await_runs(1)
    due = time.time() + 6
    expected = {proj.send("record", number, countdown=6).id for number in range(20)}
    assert sentinels.master.client().wait(1, 5000) == 1
    sentinels.master.stop(signal.SIGKILL)
    sentinels.await_new_master()
    expected.add(proj.send("record", "after", countdown=1).id)
    proj.await_runs(22, timeout_s=40)
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
            until(lambda: sentinels.master.client().llen("celery") == 1, 20, "delivered by the first master")
            proj.send("record", 2, countdown=3)
            assert sentinels.master.client().wait(1, 5000) == 1
            sentinels.fail_over()
            sentinels.await_new_master()
            sentinels.await_demotion()
            proj.send("record", 3, countdown=0.5)
            until(lambda: sentinels.replica.client().llen("celery") == 3, 30, "delivered by the new master")
        finally:
            transfer.stop()
    assert sentinels.replica.client().zcard("delayq:{celery}:due") == 0
    assert sentinels.replica.client().hlen("delayq:{celery}:bodies") == 0


def test_nobody_stays_with_a_primary_that_is_none_any_more(sentinels: Sentinels, make_proj: MakeProj) -> None:
    """After a planned failover, publisher, transfer worker and consumer are at the new primary before the old one ends.

    The old one takes writes for ten seconds more, and forgets them then.
    """
    proj = make_proj(sentinels.master, **_settings(sentinels.urls("delayq+sentinel"), None))
    worker = proj.worker()
    proj.send("record", "before", countdown=0.5)
    proj.await_runs(1)
    sentinels.fail_over()
    sentinels.await_new_master()
    new = sentinels.replica.client()

    def published_there() -> bool:
        return bool(new.zscore("delayq:{celery}:due", proj.send("record", "there", countdown=1).id))

    until(published_there, 8, "published to the new one")
    until(lambda: proj.runs(value="there"), 8, "run from the new one")
    until(lambda: new.client_list("normal") and "blmove" in {each["cmd"] for each in new.client_list()}, 8, "consumed")
    assert sentinels.master.client().info("replication")["role"] == "master", "the test came too late to tell"
    assert worker.alive()


def test_sentinels_that_do_not_answer_hold_up_nobody(sentinels: Sentinels) -> None:
    """Where no Sentinel answers, whoever is connected stays with its primary."""
    with Connection(sentinels.urls("delayq+sentinel"), transport_options=OPTIONS) as connection:
        channel = connection.default_channel
        assert channel.store.queues.size("q") == 0
        asked = channel.pool._named()
        for port in sentinels.ports:
            redis.Redis(port=port).execute_command("CLIENT", "PAUSE", 60_000, "ALL")
        until(lambda: asked.address() is None, 10)
        for _ in range(50):
            assert channel.store.queues.size("q") == 0
        assert asked.address() is None


def test_transfer_worker_waits_for_no_sentinel_without_end(sentinels: Sentinels) -> None:
    """The connections of a transfer worker to the Sentinels have a timeout, as those to the master."""
    with Connection(sentinels.urls("delayq+sentinel"), transport_options=OPTIONS) as connection:
        pool: Any = connection.default_channel.separate_pool()
        nodes = pool.sentinel_manager.sentinels
        assert len(nodes) == 2
        for each in (pool, *(node.connection_pool for node in nodes)):
            assert each.connection_kwargs["socket_timeout"] == 5.0
