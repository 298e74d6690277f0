"""The cluster of the tests does what it says: all other tests over a cluster rely on it."""

import time
from pathlib import Path

from tests.support.conditions import until
from tests.support.servers.certificates import Authority
from tests.support.servers.cluster import PrivateCluster, slot_of
from tests.support.servers.redis_version import need_tls
from tests.support.servers.replication import Replication


def test_shares_slots_among_primaries_with_replicas(cluster: PrivateCluster) -> None:
    """Three primaries have all slots, each has one replica, and a client writes to all of them."""
    primaries = cluster.primaries()
    assert sorted(slot for node in primaries for slot in cluster.slots_of(node)) == list(range(16384))
    assert [len(cluster.replicas_of(node)) for node in primaries] == [1, 1, 1]
    with cluster.client() as client:
        for number in range(30):
            client.set(f"key{number}", number)
        assert all(node.client.dbsize() for node in primaries)
        cluster.flush()
        assert client.dbsize() == 0


def test_moves_a_slot_with_its_keys(cluster: PrivateCluster) -> None:
    """The keys of a slot move page by page, all nodes know the new owner, and it moves back."""
    slot, old = slot_of("{orders}"), cluster.node_of("{orders}")
    new = next(node for node in cluster.primaries() if node is not old)
    with cluster.client() as client:
        for number in range(25):
            client.set(f"{{orders}}{number}", number)
        assert cluster.move_slot(slot, new, page=10) == 25
        assert cluster.node_of("{orders}") is new
        assert client.get("{orders}7") == "7"
        assert cluster.move_slot(slot, old) == 25
    cluster.await_agreement()


def test_survives_a_killed_and_a_stopped_primary(own_cluster: PrivateCluster) -> None:
    """A replica takes the place of a killed primary, which comes back as its replica; likewise if it is stopped."""
    for stopped in (False, True):
        old = own_cluster.node_of("orders")
        (replica,) = own_cluster.replicas_of(old)
        own_cluster.stop_process(old) if stopped else own_cluster.kill(old)
        own_cluster.await_promotion(replica)
        own_cluster.continue_process(old) if stopped else own_cluster.restart(old)
        until(lambda old=old, replica=replica: own_cluster.replicas_of(replica) == [old], 30, "the old one follows")
        own_cluster.await_in_sync()


def test_tells_which_writes_are_gone_with_a_primary(own_cluster: PrivateCluster) -> None:
    """What a killed primary had before the window, its replica has; and the window is short."""
    old = own_cluster.node_of("orders")
    (new,), slots, written = own_cluster.replicas_of(old), own_cluster.slots_of(old), []
    with Replication(own_cluster) as replication:
        end = time.time() + 1
        while time.time() < end:
            old.client.rpush("orders", len(written))
            written.append(time.time())
        own_cluster.kill(old)
        gone = time.time()
        own_cluster.await_promotion(new)
        window = replication.note(old, new, slots, gone)
    kept = int(new.client.llen("orders"))
    assert all(at >= window.begin for at in written[kept:])
    assert 0 < gone - window.begin < 1


def test_fails_over_and_changes_its_nodes(own_cluster: PrivateCluster) -> None:
    """A replica becomes primary when asked; a node is added, gets a slot with its key, and is removed."""
    old = own_cluster.node_of("orders")
    replica = own_cluster.failover(old)
    assert own_cluster.node_of("orders") is replica
    with own_cluster.client() as client:
        client.set("orders", 1)
        new = own_cluster.add_node()
        own_cluster.move_slot(slot_of("orders"), new)
        assert client.get("orders") == "1"
        own_cluster.remove_node(new)
        assert client.get("orders") == "1"
    own_cluster.await_agreement()
    assert len(own_cluster.nodes) == 6


def test_offers_tls_and_a_password(tmp_path: Path) -> None:
    """With a certificate and a password, nodes find each other, and a slot moves."""
    need_tls()
    authority = Authority(tmp_path, "authority")
    files = (authority.certificate, *authority.issue("127.0.0.1"))
    with PrivateCluster(primaries=2, replicas=1, password="secret", certificate=files) as cluster:
        with cluster.client() as client:
            client.set("orders", 1)
            new = next(node for node in cluster.primaries() if node is not cluster.node_of("orders"))
            cluster.move_slot(slot_of("orders"), new)
            assert client.get("orders") == "1"
        assert cluster.url.startswith("delayqs+cluster://:secret@127.0.0.1:")
