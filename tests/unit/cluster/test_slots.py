"""A command goes to the hash slot of its first key. Where nobody has given a cluster its slots, an error says so."""

import pytest
from redis.crc import key_slot

from kombu_delayq.cluster.commands import slot_of
from kombu_delayq.cluster.topology import NodeAddress, NoNode, Topology

ORDERS = key_slot(b"orders")


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "orders"),
        ("get", b"orders"),
        ("EVALSHA", "sha", 2, "orders", "other", "argument"),
        ("EVAL", "text", "1", "orders"),
        ("OBJECT", "ENCODING", "orders"),
        ("MEMORY USAGE", "orders"),
        ("XGROUP CREATE", "orders", "group", "$"),
        ("XREAD", "COUNT", 1, "STREAMS", "orders", "0"),
        ("ZUNION", 2, "orders", "other"),
        ("BLMOVE", "orders", "other", "RIGHT", "LEFT", 1),
        ("BLMPOP", 1, 2, "orders", "other", "LEFT"),
        ("LPUSH", "{orders}:due", "x"),
    ],
)
def test_finds_the_first_key(command: tuple[object, ...]) -> None:
    """Wherever the first key stands, and whatever the name of the command looks like."""
    assert slot_of(command) == ORDERS


@pytest.mark.parametrize(
    "command",
    [
        ("PING",),
        ("PUBLISH", "channel", "x"),
        ("SCRIPT LOAD", "text"),
        ("SCRIPT", "EXISTS", "sha"),
        ("CLIENT", "UNBLOCK", 1),
        ("EVAL", "text", 0, "argument"),
        ("INFO",),
    ],
)
def test_knows_commands_without_a_key(command: tuple[object, ...]) -> None:
    """Any node can run them."""
    assert slot_of(command) is None


def test_a_cluster_without_slots_is_not_called_silent() -> None:
    """Nodes that were never joined to a cluster answer that nobody has slots; the error says what to do."""
    topology = Topology([NodeAddress("127.0.0.1", 7000)], lambda node, timeout_s: [])
    with pytest.raises(NoNode, match=r"no node of the cluster has slots: 127\.0\.0\.1:7000.*--cluster create"):
        topology.any_order()
