"""Nodes of a Redis Cluster, and servers that are none."""

import redis
from redis.crc import key_slot

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys


def test_one_node_serves_all_slots(own_server: PrivateRedis) -> None:
    """A server with slots is one node, which has all of them, and a queue has the slot of its list."""
    store = DelayStore(redis.Redis(port=own_server.port), SlotKeys("p:"))
    cluster = store.nodes()
    assert cluster is not None
    [node] = cluster.nodes
    assert (node.name, node.role, node.state) == (f"localhost:{own_server.port}", "primary", "ok")
    assert (node.ranges, node.count, cluster.uncovered, cluster.down) == (((0, 16383),), 16384, 0, [])
    assert node.memory is not None
    assert node.memory.used > 0
    assert cluster.place_of("orders") == (key_slot(b"p:orders"), node.name)
    assert cluster.slot_of("{x}y") == key_slot(b"x")


def test_slots_that_nobody_serves_are_counted(own_server: PrivateRedis) -> None:
    """A queue in a slot without a node has none, and the number of such slots is known."""
    client = redis.Redis(port=own_server.port)
    store = DelayStore(client, SlotKeys())
    client.execute_command("CLUSTER", "DELSLOTS", *range(100, 200))
    cluster = store.nodes()
    assert cluster is not None
    assert (cluster.uncovered, cluster.node_of(150), cluster.nodes[0].ranges) == (100, None, ((0, 99), (200, 16383)))
    assert cluster.node_of(200) == cluster.nodes[0].name


def test_a_service_that_does_not_tell_its_nodes_is_no_error(own_server: PrivateRedis) -> None:
    """Where CLUSTER is refused, the reason takes the place of the nodes; the slots are still known."""
    admin = redis.Redis(port=own_server.port)
    admin.acl_setuser("plain", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-cluster"])
    store = DelayStore(redis.Redis(port=own_server.port, username="plain", password="x"), SlotKeys())
    cluster = store.nodes()
    assert cluster is not None
    assert (cluster.nodes, cluster.uncovered, cluster.node_of(1)) == ((), None, None)
    assert "cluster" in cluster.error
    assert cluster.place_of("orders") == (key_slot(b"orders"), None)


def test_a_plain_server_has_no_nodes() -> None:
    """Without hash slots nothing is asked."""
    store = DelayStore(redis.Redis(port=1), Keys())
    assert store.nodes() is None
