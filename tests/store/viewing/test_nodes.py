"""Nodes of a Redis Cluster, and servers that are none."""

from collections.abc import Iterator

import pytest
import redis
from redis.crc import key_slot

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.cluster import Nodes, SlotKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys


@pytest.fixture(scope="module")
def slots_server() -> Iterator[PrivateRedis]:
    with PrivateRedis(slots=True) as server:
        yield server


def test_one_node_serves_all_slots(slots_server: PrivateRedis) -> None:
    """A server with slots is one node, which has all of them, and a queue has the slot of its list."""
    store = DelayStore(redis.Redis(port=slots_server.port), SlotKeys("p:"))
    cluster = store.part(Nodes).overview()
    assert cluster is not None
    [node] = cluster.nodes
    assert (node.name, node.role, node.state) == (f"localhost:{slots_server.port}", "primary", "ok")
    assert (node.slots, node.count, cluster.uncovered, cluster.down) == (((0, 16383),), 16384, 0, [])
    assert node.memory is not None
    assert node.memory.used > 0
    assert store.part(Nodes).slot_of("orders") == key_slot(b"p:orders")
    assert store.part(Nodes).slot_of("{x}y") == key_slot(b"x")
    assert cluster.node_of(key_slot(b"p:orders")) == node.name


def test_slots_that_nobody_serves_are_counted(slots_server: PrivateRedis) -> None:
    """A queue in a slot without a node has none, and the number of such slots is known."""
    client = redis.Redis(port=slots_server.port)
    store = DelayStore(client, SlotKeys())
    client.execute_command("CLUSTER", "DELSLOTS", *range(100, 200))
    try:
        cluster = store.part(Nodes).overview()
        assert cluster is not None
        assert (cluster.uncovered, cluster.node_of(150), cluster.nodes[0].slots) == (100, None, ((0, 99), (200, 16383)))
        assert cluster.node_of(200) == cluster.nodes[0].name
    finally:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(100, 200))


def test_a_service_that_does_not_tell_its_nodes_is_no_error(slots_server: PrivateRedis) -> None:
    """Where CLUSTER is refused, the reason takes the place of the nodes; the slots are still known."""
    admin = redis.Redis(port=slots_server.port)
    admin.acl_setuser("plain", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-cluster"])
    store = DelayStore(redis.Redis(port=slots_server.port, username="plain", password="x"), SlotKeys())
    cluster = store.part(Nodes).overview()
    assert cluster is not None
    assert (cluster.nodes, cluster.uncovered, cluster.node_of(1)) == ((), None, None)
    assert "cluster" in cluster.error
    assert store.part(Nodes).slot_of("orders") == key_slot(b"orders")


def test_a_plain_server_has_no_nodes(slots_server: PrivateRedis) -> None:
    """Without hash slots nothing is asked, and a queue has no slot."""
    store = DelayStore(redis.Redis(port=1), Keys())
    assert (store.part(Nodes).overview(), store.part(Nodes).slot_of("orders")) == (None, None)
