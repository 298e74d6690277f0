"""What is left in Redis at the end of a run."""

import redis

from tests.chaos.ledger.leftovers import ids_in, left, waiting


def test_keys_that_may_stay_are_told_from_those_that_must_not(client: redis.Redis) -> None:
    """A message in a list, or in hand, must not stay, and names its task; a binding may."""
    client.sadd("_kombu.binding.chaos.ours", "chaos.ours")
    client.lpush("chaos.ours", '{"headers": {"id": "publisher-ours-0.2.17"}}')
    client.hset("unacked", "vm:1:abc.4", '[{"headers": {"id": "publisher-stock-1.0.5"}}]')
    found = left(client, running=False)
    assert {entry.key: bool(entry.why) for entry in found} == {
        "_kombu.binding.chaos.ours": True,
        "chaos.ours": False,
        "unacked": False,
    }
    assert ids_in(client, found) == {"publisher-ours-0.2.17": "chaos.ours", "publisher-stock-1.0.5": "unacked"}
    assert next(entry.sample for entry in found if entry.key == "unacked") == ("vm:1:abc.4",)
    assert waiting(client) == 2


def test_leases_may_stay_while_consumers_run(client: redis.Redis) -> None:
    """A lease is no message, and must not outlive the consumers; nor is what was counted in an hour."""
    client.set("delayq:{chaos.ours}:counts:498815", b"\xa4")
    client.zadd("{delayq}:consumers", {"vm:1:abc": 1})
    assert waiting(client) == 0
    assert [bool(entry.why) for entry in left(client, running=False)] == [True, False]
