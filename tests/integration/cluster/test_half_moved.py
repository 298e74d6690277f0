"""A slot that stays between two nodes, as an operator leaves it who has stopped in the middle."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection

from kombu_delayq.cluster.pool import RETRY_S
from kombu_delayq.cluster.topology import NoNode
from kombu_delayq.store import Requeued
from tests.support.conditions import DEADLINE_S, until
from tests.support.looped import Looped, publish
from tests.support.servers.cluster import PrivateCluster, slot_of
from tests.support.servers.cluster_node import Node
from tests.support.store.keyspace import KEYS

QUEUE = "orders"
#: The command that asks for keys, as Redis calls it from 7.0 on, and before.
COUNTED = ("cluster|countkeysinslot", "cluster")


@dataclass
class Move:
    """The move of a queue's slot."""

    cluster: PrivateCluster
    here: Node
    there: Node

    def begin(self) -> None:
        """Lets the slot be between two nodes, with its keys where they are."""
        slot = slot_of(QUEUE)
        self.there.set_slot(slot, "IMPORTING", self.here.id)
        self.here.set_slot(slot, "MIGRATING", self.there.id)

    def move_keys(self) -> None:
        """Moves all keys that there are."""
        while keys := self.here.client.execute_command("CLUSTER GETKEYSINSLOT", slot_of(QUEUE), 100):
            self.move(*keys)

    def move(self, *keys: str | bytes) -> None:
        """Moves keys."""
        self.here.client.execute_command("MIGRATE", "127.0.0.1", self.there.port, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        """Gives the slot to the new node."""
        for node in (self.there, self.here, *self.cluster.primaries()):
            node.set_slot(slot_of(QUEUE), "NODE", self.there.id)

    def cancel(self) -> None:
        """Leaves the slot with the old node, which has all keys."""
        for node in (self.there, self.here):
            node.set_slot(slot_of(QUEUE), "STABLE")


@pytest.fixture
def move(patient_cluster: PrivateCluster) -> Move:
    """A slot that may be left between two nodes."""
    here = patient_cluster.node_of(QUEUE)
    there = next(node for node in patient_cluster.primaries() if node is not here)
    return Move(patient_cluster, here, there)


def in_hand(looped: Looped) -> int:
    """Counts what consumers hold."""
    return int(looped.store.consumers.counts(QUEUE).total())


def test_messages_go_on_while_all_keys_are_on_the_new_node(move: Move) -> None:
    """For longer than commands are tried again, messages are published, delayed, delivered and acknowledged."""
    with Connection(move.cluster.url) as sender, Looped(Connection(move.cluster.url), QUEUE) as looped:
        publish(sender, QUEUE, 0)
        looped.until(lambda: looped.received == [0])
        move.begin()
        move.move_keys()
        app = Celery(broker=move.cluster.url, set_as_current=False)
        begun, sent = monotonic(), 0
        while monotonic() - begun < RETRY_S + 1:
            sent += 2
            publish(sender, QUEUE, sent)
            app.send_task("later", queue=QUEUE, countdown=0.1)
            looped.until(lambda sent=sent: len(looped.received) == sent + 1)  # type: ignore[misc]
        looped.until(lambda: not in_hand(looped), "all are acknowledged")
        channel = looped.channel
        move.end()
        publish(sender, QUEUE, "moved")
        looped.until(lambda: looped.received[-1] == "moved")
        looped.until(lambda: not in_hand(looped))
        assert looped.channel is channel
        app.close()


def test_a_new_leader_finds_what_waits_on_the_new_node_beside_keys_that_are_nowhere(move: Move) -> None:
    """A first look finds a queue whose slot stays half moved, and a purge empties it and forgets its name.

    Another queue of the same node is the one that such a look always reads.
    """
    other = next(name for name in map("other{}".format, range(1000)) if move.cluster.node_of(name) is move.here)
    with Connection(move.cluster.url) as connection, Celery(broker=move.cluster.url, set_as_current=False) as app:
        app.send_task("later", queue=QUEUE, countdown=600)
        move.begin()
        move.move_keys()
        store: Any = connection.default_channel.store
        assert [delayed.queue for delayed in store.delivery.heads([other, QUEUE]).due_ms] == [QUEUE]
        assert store.queues.purge(QUEUE) == 1
        assert QUEUE not in store.queues.names()


@pytest.mark.parametrize("count", [1, 2])
def test_a_script_makes_no_key_that_it_does_not_name_and_is_on_the_old_node(move: Move, count: int) -> None:
    """All keys that a script names have moved, its counters have not: it waits, so that they can be moved as well."""
    keys, counters = [f"{{{QUEUE}}}{n}" for n in range(count)], f"delayq:{{{QUEUE}}}:counts"
    client = move.here.client
    with Connection(move.cluster.url) as connection, ThreadPoolExecutor(1) as threads:
        store: Any = connection.default_channel.store
        store.client.connection_pool.retry_s = DEADLINE_S  # however long the move takes
        for key in (*keys, counters):
            store.client.incr(key)
        move.begin()
        move.move(*keys)
        looks = looked(client)
        reply = threads.submit(store.client.eval, "return redis.call('INCR', ARGV[1])", count, *keys, counters)
        until(lambda: reply.done() or looked(client) > looks, what="the script is held up")
        move.move_keys()
        assert reply.result() == 2


def test_a_script_makes_no_key_that_is_on_the_old_node(move: Move) -> None:
    """Redis 6.2 answers ``ASK`` because of a key that is nowhere, although the old node has another one."""
    keys = [f"{{{QUEUE}}}none", QUEUE]
    with Connection(move.cluster.url) as connection:
        client: Any = connection.default_channel.store.client
        client.rpush(QUEUE, 1)
        move.begin()
        client.connection_pool.retry_s = 0.3
        with pytest.raises(NoNode):
            client.eval("return redis.call('RPUSH', KEYS[2], 2)", len(keys), *keys)
        assert not move.there.client.execute_command("CLUSTER COUNTKEYSINSLOT", slot_of(QUEUE))
        move.move_keys()
        client.connection_pool.retry_s = DEADLINE_S
        assert client.eval("return redis.call('RPUSH', KEYS[2], 2)", len(keys), *keys) == 2


def looked(client: redis.Redis) -> int:
    """Counts how often a node was asked whether it has keys; Redis 6.2 counts all commands of CLUSTER together."""
    stats = client.info("commandstats")
    return sum(int(stats[f"cmdstat_{name}"]["calls"]) for name in COUNTED if f"cmdstat_{name}" in stats)


def test_the_old_node_runs_no_script_in_part(move: Move) -> None:
    """Redis stops a script at a key that is gone since it began, so none begins there, although all its keys are there.

    Of two messages one was held: the script would be stopped behind it.
    """
    with Connection(move.cluster.url) as connection:
        store: Any = connection.default_channel.store
        held, gone = (Requeued(f"tag{n}", QUEUE, 0, f"message{n}".encode()) for n in range(2))
        store.client.hset(KEYS.unacked(QUEUE), held.tag, "[]")
        store.client.zadd(KEYS.unacked_index(QUEUE), {held.tag: 1})
        store.client.hset(KEYS.places(QUEUE), "other", "")
        store.client.rpush(QUEUE, "before")
        move.begin()
        store.client.connection_pool.retry_s = 0.3
        with pytest.raises(NoNode):
            store.fetching.requeue([held, gone], "last")
        assert move.here.client.hlen(KEYS.unacked(QUEUE)) == 1
        assert move.here.client.llen(QUEUE) == 1
        move.cancel()
        assert store.fetching.requeue([held, gone], "last") == [gone.tag]
        assert store.client.lrange(QUEUE, 0, -1) == [b"message0", b"before"]


def test_messages_that_stay_on_the_old_node_are_delivered_when_the_move_is_cancelled(move: Move) -> None:
    """Some keys are there and others cannot be made: nothing is lost, and delivery goes on by itself."""
    with Connection(move.cluster.url) as sender, Looped(Connection(move.cluster.url), QUEUE) as looped:
        publish(sender, QUEUE, 0)
        looped.until(lambda: looped.received == [0])
        looped.until(lambda: not in_hand(looped))
        looped.consumer.cancel()
        publish(sender, QUEUE, 1, 2)
        move.begin()
        publish(sender, QUEUE, 3)
        looped.consumer.consume()
        begun = monotonic()
        looped.until(lambda: monotonic() - begun > RETRY_S + 1, timeout_s=20)
        channel = looped.channel
        move.cancel()
        looped.until(lambda: looped.received == [0, 1, 2, 3])
        looped.until(lambda: not in_hand(looped))
        assert looped.channel is channel
