"""The client of a cluster follows slots and nodes, and repeats nothing that may have been run."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from kombu import Connection

from kombu_delayq.cluster.client import ClusterClient, ClusterPool
from kombu_delayq.cluster.topology import NoNode
from kombu_delayq.redis import SendAhead
from tests.support.conditions import DEADLINE_S, until
from tests.support.servers.cluster import PrivateCluster, slot_of

#: Keys on three nodes.
KEYS = ("a", "b", "c", "d", "e", "f")


@pytest.fixture
def client(cluster: PrivateCluster) -> Iterator[ClusterClient]:
    """A client of the shared cluster."""
    with Connection(cluster.url) as connection:
        yield connection.default_channel.store.client


@pytest.fixture
def own_client(own_cluster: PrivateCluster) -> Iterator[ClusterClient]:
    """A client of a cluster that the test may harm."""
    with Connection(own_cluster.url) as connection:
        yield connection.default_channel.store.client


def pool_of(client: ClusterClient) -> ClusterPool:
    """Returns the pool of a client, whose type says more than that of redis-py."""
    pool: Any = client.connection_pool
    assert isinstance(pool, ClusterPool)
    return pool


def test_sends_commands_to_the_nodes_of_their_keys(cluster: PrivateCluster, client: ClusterClient) -> None:
    """One by one and in pipelines, whose replies have the order of the commands; errors of Redis are among them."""
    assert len({cluster.node_of(key) for key in KEYS}) == 3
    for key in KEYS:
        client.set(key, key)
    with client.pipeline(transaction=False) as pipe:
        for key in KEYS:
            pipe.get(key).lpush(key, "x")
        replies = pipe.execute(raise_on_error=False)
    assert replies[::2] == [key.encode() for key in KEYS]
    assert all(isinstance(reply, redis.ResponseError) for reply in replies[1::2])
    assert {key.decode() for key in client.scan_iter("?")} == {*KEYS}
    assert {*client.connection_pool.clients()} == {f"127.0.0.1:{node.port}" for node in cluster.primaries()}
    pool = pool_of(client)
    until(
        lambda: pool.refresh() or len(pool.clients(replicas=True)) == 6,
        what="Redis names replicas that have data",
    )
    assert all(node.dbsize() for node in client.connection_pool.clients().values())


def test_runs_scripts_on_each_node(client: ClusterClient) -> None:
    """redis-py's scripts are loaded where they run, in pipelines too, as kombu keeps its bindings from expiring."""
    script = client.register_script("return redis.call('INCR', KEYS[1])")
    assert [script(keys=[key]) for key in KEYS] == [1] * len(KEYS)
    other = client.register_script("return redis.call('DECR', KEYS[1])")
    with client.pipeline(transaction=False) as pipe:
        for key in KEYS:
            other(keys=[key], client=pipe)
        assert pipe.execute() == [0] * len(KEYS)


def test_runs_transactions_of_one_slot(client: ClusterClient) -> None:
    """Several slots are refused before anything runs."""
    with client.pipeline() as pipe:
        assert pipe.set("{a}1", 1).incr("{a}1").execute() == [True, 2]

    assert client.get("{a}1") == b"2"
    with client.pipeline() as pipe, pytest.raises(redis.ResponseError, match="CROSSSLOT"):
        pipe.set("a", 1).set("b", 1).execute()
    assert client.get("a") is None


def test_sends_ahead_to_all_nodes(client: ClusterClient) -> None:
    """Commands whose replies come later, for keys of several nodes."""
    ahead = SendAhead(client.connection_pool)
    ahead.send([("SET", key, key) for key in KEYS])
    assert ahead.confirm() == [b"OK"] * len(KEYS)
    *replies, error = client.connection_pool.send([*(("GET", key) for key in KEYS), ("LPUSH", "a", "x")]).replies()
    assert replies == [key.encode() for key in KEYS]
    assert isinstance(error, redis.ResponseError)


def test_threads_wait_for_a_connection(cluster: PrivateCluster) -> None:
    """More threads than a pool has connections send one by one, in pipelines, in transactions and ahead: none fails."""
    with Connection(cluster.url, transport_options={"max_connections": 1}) as connection:
        client = connection.default_channel.store.client
        pool = pool_of(client)
        for each in pool.clients().values():
            each.connection_pool.max_connections = 1

        def at_once(number: int) -> Any:
            key = KEYS[number % len(KEYS)]
            if number % 4 == 0:
                return client.incr(key)
            if number % 4 == 1:
                return pool.send([("INCR", key) for key in KEYS]).replies()
            with client.pipeline(transaction=number % 4 == 2) as pipe:
                return pipe.incr(key).execute()

        for node in cluster.primaries():
            node.client.client_pause(300)
        with ThreadPoolExecutor(24) as threads:
            done = [*threads.map(at_once, range(24))]
        assert not [each for each in done if isinstance(each, Exception)]
        assert all(isinstance(reply, int) for each in done if isinstance(each, list) for reply in each), done
        assert sum(int(client.get(key)) for key in KEYS) == 18 + 6 * len(KEYS)
        assert all(pool.topology.may_answer(pool.topology.node_of(slot_of(key))) for key in KEYS)


def test_follows_a_slot_that_moves(cluster: PrivateCluster, client: ClusterClient) -> None:
    """While it moves, a key is where ASK says; a command with keys in both places waits until they are together."""
    slot, old = slot_of("{q}"), cluster.node_of("{q}")
    new = next(node for node in cluster.primaries() if node is not old)
    client.rpush("{q}list", 1)
    client.set("{q}moved", 1)
    new.set_slot(slot, "IMPORTING", old.id)
    old.set_slot(slot, "MIGRATING", new.id)
    old.client.execute_command("MIGRATE", "127.0.0.1", new.port, "{q}moved", 0, 5000)
    assert client.get("{q}moved") == b"1"
    assert client.rpush("{q}list", 2) == 2
    assert client.rpush("{q}other", 1) == 1  # a new key is made at the new node
    with client.pipeline() as pipe:
        assert pipe.incr("{q}moved").incr("{q}moved").execute() == [2, 3]
    with client.pipeline(transaction=False) as pipe:
        assert pipe.get("{q}moved").llen("{q}list").execute() == [b"3", 2]

    def ask_for_both() -> None:
        found.append(client.eval("return {redis.call('LLEN', KEYS[1]), redis.call('GET', KEYS[2])}", 2, *both))

    found: list[Any] = []
    both = ("{q}list", "{q}moved")
    pool_of(client).retry_s = DEADLINE_S  # however long the move takes
    thread = threading.Thread(target=ask_for_both)
    thread.start()
    cluster.move_slot(slot, new)
    thread.join(DEADLINE_S)
    assert found == [[2, b"3"]]
    cluster.move_slot(slot, old)
    assert client.llen("{q}list") == 2
    cluster.await_agreement()


def test_follows_a_failover_without_an_error(own_cluster: PrivateCluster, own_client: ClusterClient) -> None:
    """A replica takes over when asked, and when its primary has died: commands wait for it."""
    own_client.set("a", 1)
    own_cluster.failover(own_cluster.node_of("a"))
    assert own_client.get("a") == b"1"
    own_cluster.await_in_sync()
    old = own_cluster.node_of("a")
    pool_of(own_client).retry_s = DEADLINE_S  # however long the replica takes
    old.kill()
    assert own_client.get("a") == b"1"
    assert own_cluster.node_of("a") is not old
    assert own_client.publish("channel", "x") == 0  # at whatever node
    old.start()


def test_answers_for_other_nodes_while_one_hangs(patient_cluster: PrivateCluster, own_client: ClusterClient) -> None:
    """A pipeline has the replies of the nodes that answer; for the others an error that says so."""
    for key in KEYS:
        own_client.set(key, 1)
    pool_of(own_client).hurry()
    hanging = patient_cluster.node_of("a")
    hanging.client.set("a", 1)
    assert hanging.client.wait(1, 15_000) == 1
    hanging.stop()
    with own_client.pipeline(transaction=False) as pipe:
        for key in KEYS:
            pipe.get(key)
        replies = dict(zip(KEYS, pipe.execute(raise_on_error=False), strict=True))
    assert isinstance(replies["a"], (redis.ConnectionError, redis.TimeoutError))
    assert b"1" in replies.values()
    for node in patient_cluster.nodes:
        if node is not hanging:
            node.client.config_set("cluster-node-timeout", 1000)  # only now may its replica take its place
    until(lambda: _value_of(own_client, "a") == b"1", what="the replica has taken over")
    hanging.go_on()


def _value_of(client: ClusterClient, key: str) -> Any:
    try:
        return client.get(key)
    except (redis.ConnectionError, redis.TimeoutError):
        return None


def test_a_late_answer_is_an_answer(patient_cluster: PrivateCluster, own_client: ClusterClient) -> None:
    """A node that was slow once needs no probe before its next command, which might be late then, too."""
    node, slot, topology = patient_cluster.node_of("a"), slot_of("a"), own_client.connection_pool.topology
    own_client.set("a", 1)
    node.stop()
    reply: list[Any] = []
    asking = threading.Thread(target=lambda: reply.append(own_client.get("a")))
    asking.start()
    until(lambda: topology.sure_of(slot) is None)
    node.go_on()
    asking.join(DEADLINE_S)
    assert reply == [b"1"]
    assert topology.sure_of(slot) is not None


def test_repeats_no_command_whose_reply_is_lost(cluster: PrivateCluster, client: ClusterClient) -> None:
    """The caller gets the error, and decides."""
    client.delete("a")
    node = cluster.node_of("a")
    pushed = threading.Event()

    def kill_when_pushed() -> None:
        until(lambda: "blpop" in {one["cmd"] for one in node.client.client_list()}, what="it waits")
        node.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        pushed.set()

    thread = threading.Thread(target=kill_when_pushed)
    thread.start()
    with pytest.raises(redis.ConnectionError):
        client.execute_command("BLPOP", "a", 20)
    thread.join()
    assert pushed.is_set()
    assert client.rpush("a", "x") == 1  # over a new connection, at once


def test_says_that_no_node_answers() -> None:
    """At once, with an error that kombu knows as a lost connection."""
    with Connection("delayq+cluster://127.0.0.1:1,127.0.0.1:2") as connection, pytest.raises(redis.ConnectionError):
        connection.connect()


def test_says_how_long_it_has_waited(patient_cluster: PrivateCluster, own_client: ClusterClient) -> None:
    """A slot that no node has is an error after some time, and other slots go on."""
    pool_of(own_client).retry_s = 0.3
    slot = slot_of("a")
    for node in patient_cluster.nodes:
        node.client.execute_command("CLUSTER DELSLOTS", slot)
    with pytest.raises(NoNode, match=r"within 0\.3 s"):
        own_client.get("a")
    pool_of(own_client).retry_s = DEADLINE_S
    assert own_client.get("b") is None


def test_survives_a_fork(cluster: PrivateCluster, client: ClusterClient) -> None:
    """A child uses connections of its own, although a thread of the parent was asking for the nodes."""
    client.set("a", 1)
    topology = pool_of(client).topology
    with topology._asking[1]:
        pid = os.fork()
        if not pid:
            try:
                topology.refresh()
                os._exit(0 if client.get("a") == b"1" else 1)
            finally:  # an error would let the child go on with the tests
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.get("a") == b"1"
