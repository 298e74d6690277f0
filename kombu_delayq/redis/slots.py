"""The hash slots of Redis Cluster: which one a key is in, and whether a server has them."""

from collections.abc import Mapping

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import ResponseError

from kombu_delayq.redis.errors import passes
from kombu_delayq.text import as_bytes, as_text

#: How many hash slots every Redis Cluster has.
SLOTS = 16_384


def slot_of_key(key: str | bytes) -> int:
    """Returns the hash slot of a key."""
    return int(key_slot(as_bytes(key)))


def have_slots(client: Redis, *apart: str) -> bool:
    """Returns whether a server keeps keys in hash slots, be it one of many nodes or a single one.

    Such a server refuses commands and scripts whose keys are in different slots. Managed services enforce that also
    where they show one node only. Some of them do not call themselves a cluster, so a command is tried as well.

    Args:
        client: A plain Redis client.
        apart: Two keys in different slots.
    """
    try:
        client.execute_command("EVAL", "return 0", len(apart), *apart)  # each user of a broker has this right
    except ResponseError as error:
        if "CROSSSLOT" in f"{type(error).__name__.upper()} {error}":
            return True
    try:
        found = client.execute_command("HELLO")
    except ResponseError:  # unknown, or renamed by the server
        return False
    fields = found if isinstance(found, Mapping) else dict(zip(found[::2], found[1::2], strict=True))
    return {as_text(name): value for name, value in fields.items()}.get("mode") in (b"cluster", "cluster")


def primaries(client: Redis) -> int:
    """Counts the nodes among which a server with hash slots divides them, as far as it says.

    Args:
        client: A plain Redis client.

    Returns:
        The number; 1 where the server does not answer, as a managed service that shows one node only.
    """
    try:
        found = client.execute_command("CLUSTER", "SLOTS")
    except ResponseError as error:
        if passes(error):
            raise
        return 1
    return len({(as_text(primary[0]), primary[1]) for _, _, primary, *_ in found}) or 1
