"""Whether the servers of the tests keep their keys in hash slots, and what of a test depends on it."""

import os
from collections.abc import Iterable

import pytest
import redis

from kombu_delayq.connection.text import as_text
from kombu_delayq.store.keys import Keys
from tests.support.servers.redis_version import major_version

#: Whether each ``PrivateRedis`` is a Redis Cluster of one node.
SLOTS = os.environ.get("DELAYQ_REDIS_SLOTS") == "1"
#: Names of the keys of such a server, or of a plain one, without a prefix.
KEYS = Keys(slots=SLOTS)


def plain_only(reason: str) -> pytest.MarkDecorator:
    """Marks a test that cannot run on a server with hash slots.

    Args:
        reason: What is not possible there, such as "stock kombu reads lists in several slots at once".
    """
    return pytest.mark.skipif(SLOTS, reason=f"not in hash slots: {reason}")


def usable(queues: Iterable[str]) -> list[str]:
    """Returns those names of queues that the server of the tests allows; in hash slots a brace needs a hash tag."""
    return [queue for queue in queues if KEYS.has_slot(queue)]


def unacked_keys(client: redis.Redis) -> list[str]:
    """Returns the keys of messages in hand, as far as they exist: one on a plain server, else one a queue."""
    return [KEYS.unacked("")] if not SLOTS else [as_text(key) for key in client.keys("unacked:*")]


def in_hand(client: redis.Redis) -> int:
    """Counts the messages in hand."""
    return sum(client.hlen(key) for key in unacked_keys(client))


def tags_in_hand(client: redis.Redis) -> list[str]:
    """Returns the delivery tags of the messages in hand."""
    return [as_text(tag) for key in unacked_keys(client) for tag in client.hkeys(key)]


def leases(client: redis.Redis) -> int:
    """Counts the leases of consumers."""
    keys = [KEYS.consumers("")] if not SLOTS else client.keys("delayq:*:consumers")
    return sum(client.zcard(key) for key in keys)


def need_slots() -> None:
    """Skips a test on a server older than Redis 7, of which the tests can make no cluster of one node."""
    if major_version() < 7:
        pytest.skip("Redis before 7.0 has no option cluster-port, nor CLUSTER ADDSLOTSRANGE")
