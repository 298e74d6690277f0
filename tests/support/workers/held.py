"""What consumers hold on a plain server, and their leases."""

import redis

from kombu_delayq.store.keys import Keys
from kombu_delayq.text import as_text

#: Names of the keys of a plain server, without a prefix.
KEYS = Keys()
#: Keys of what consumers hold, and of their leases.
CONSUMERS, CONSUMED = KEYS.consumers(""), KEYS.consumed("")
INDEX, UNACKED = KEYS.unacked_index(""), KEYS.unacked("")


def in_hand(client: redis.Redis) -> int:
    """Counts the messages in hand."""
    return int(client.hlen(UNACKED))


def tags_in_hand(client: redis.Redis) -> list[str]:
    """Returns the delivery tags of the messages in hand."""
    return list(map(as_text, client.hkeys(UNACKED)))


def leases(client: redis.Redis) -> int:
    """Counts the leases of consumers."""
    return int(client.zcard(CONSUMERS))
