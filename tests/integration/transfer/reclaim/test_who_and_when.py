"""Which transfer worker gives back what consumers held, and when it knows that these are dead."""

import json
import os
import signal
from time import sleep

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Requeued
from kombu_delayq.transfer import dead as judges
from kombu_delayq.transfer.reclaim import Reclaiming
from tests.support.conditions import stays, until
from tests.support.store.consuming import ME, OTHER, fetch, lives, message
from tests.support.workers.held import CONSUMERS, INDEX, KEYS, UNACKED
from tests.support.workers.reclaiming import Reclaim, dead_with, gone, numbers, publish
from tests.support.workers.transfers import Transfer


def test_what_a_leader_had_begun_another_ends(store: DelayStore, reclaim: Reclaim) -> None:
    """A consumer that a leader has fenced off, before it died, is given back by the next."""
    publish(store, 3)
    dead_with(store, 3)
    assert store.consumers.fence([ME], "q") == [ME]
    store.fetching.requeue([Requeued(f"{ME}.3", "q", 0, json.dumps(message(2)))], "next")
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [0, 1, 2]


def test_a_standby_steps_in_for_a_leader_that_gives_nothing_back(store: DelayStore) -> None:
    """What nobody gives back for half a lease more, as beside a leader that hangs, a standby gives back."""
    standby = Reclaiming()
    store = DelayStore(store.client, store.keys, options=Options(consumer_ttl=2))
    publish(store, 2)
    dead_with(store, 2)

    def looks() -> bool:
        standby.go_on(store, leads=False)
        return not gone(store)

    stays(looks, 0.9)
    until(lambda: not looks())
    assert numbers(store) == [0, 1]


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_a_standby_knows_that_the_leader_is_gone(
    store: DelayStore, monkeypatch: pytest.MonkeyPatch, leader: str
) -> None:
    """It gives back what a killed leader held, whose lease as leader has not ended; the rest the leader does."""
    for name, seconds in (("LOOK_S", 0.0), ("READ_S", 0.0), ("GONE_S", 0.5), ("GRACE_S", 0.0)):
        monkeypatch.setattr(judges, name, seconds)
    monkeypatch.setattr(judges, "connected_at", lambda _pool: 0.0)
    publish(store, 2)
    store.consumers.note_queues(["q"])
    assert store.consumers.heartbeat(ME, ["q"], is_new=True, subscribed=True)
    assert len(fetch(store, 2)) == 2
    standby = Reclaiming()

    def looks() -> bool:
        standby.go_on(store, leads=False, leader=leader)
        return not gone(store)

    if leader == ME:
        until(lambda: not looks())
    else:
        stays(looks, 1.5)
    assert numbers(store) == ([0, 1] if leader == ME else [])


def test_a_living_consumer_keeps_what_it_holds(store: DelayStore, reclaim: Reclaim) -> None:
    """While one consumer's messages go back, those of another stay where they are, and so do those of stock kombu."""
    publish(store, 4)
    dead_with(store, 2)
    lives(store, OTHER)
    assert len(fetch(store, 2, name=OTHER)) == 2
    store.client.zadd(INDEX, {"of stock": 5})
    store.client.hset(UNACKED, "of stock", '[{}, "", "q"]')
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [0, 1]
    assert set(store.client.hkeys(UNACKED)) == {f"{OTHER}.1".encode(), f"{OTHER}.2".encode(), b"of stock"}
    assert store.consumers.heartbeat(OTHER, ["q"])


def test_consumers_have_the_time_to_come_back(store: DelayStore, reclaim: Reclaim) -> None:
    """A worker that has just reached Redis waits for consumers, whose leases have ended meanwhile, to renew them."""
    publish(store, 2)
    dead_with(store, 1)
    dead_with(store, 1, name=OTHER)
    reclaim(consumer_ttl=4)
    stays(lambda: store.client.zscore(CONSUMERS, ME), 0.5)
    assert store.consumers.heartbeat(ME, ["q"], [f"{ME}.1"])
    until(lambda: gone(store, OTHER))
    assert store.client.hkeys(UNACKED) == [f"{ME}.1".encode()]


def test_after_an_outage_consumers_have_the_time_to_come_back(own_server: PrivateRedis, transfer: Transfer) -> None:
    """When Redis was silent for longer than all leases, what living consumers hold is not given back."""
    store = DelayStore(redis.Redis(port=own_server.port), KEYS)
    store.consumers.note_queues(["q"])
    transfer(server=own_server, poll_interval=0.05, consumer_ttl=4)
    store.client.zadd(CONSUMERS, {OTHER: 1})
    until(lambda: gone(store, OTHER))  # so the worker has no patience left
    publish(store, 1)
    lives(store)
    fetch(store, 1)
    connection, ends_ms = redis.Connection(port=own_server.port), store.now_ms() + 500
    connection.connect()
    os.kill(own_server.pid, signal.SIGSTOP)
    sleep(2.5)  # for so long Redis is silent
    connection.send_command("ZADD", CONSUMERS, ends_ms, ME)  # nobody has seen the lease before it has ended
    os.kill(own_server.pid, signal.SIGCONT)
    assert connection.read_response() == 0
    connection.disconnect()
    stays(lambda: 0 < store.client.zscore(CONSUMERS, ME) < store.now_ms(), 0.4)
    assert store.consumers.heartbeat(ME, ["q"], [f"{ME}.1"])
    assert store.fetching.ack([f"{ME}.1"], "q") == []
    store.close()
