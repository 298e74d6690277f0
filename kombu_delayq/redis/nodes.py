"""The nodes of a Redis, one or several."""

from collections.abc import Iterator
from itertools import islice

from redis import Redis
from redis.exceptions import ResponseError

from kombu_delayq.redis.errors import passes
from kombu_delayq.text import as_bytes, as_text


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


def clients_of(client: Redis, *, replicas: bool = False) -> dict[str, Redis]:
    """Returns a plain client for each node; connects to none of them.

    Args:
        client: A client of a server, or of a cluster.
        replicas: Whether to return those of replicas, too.

    Returns:
        By the address of each node, as the cluster gives it. The name of a plain server's address is ``host:port``, or
        the path of its socket.
    """
    nodes = getattr(client, "nodes", None)
    if nodes is not None:
        found: dict[str, Redis] = nodes(replicas=replicas)
        return found
    at = client.connection_pool.connection_kwargs
    return {at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}": client}


def scan_pages(client: Redis, pattern: str, count: int, most: int | None = None) -> Iterator[list[bytes | str]]:
    """Yields the names of the keys that match a pattern, page by page, over all primaries; some names come twice.

    Args:
        client: A client of a server, or of a cluster.
        pattern: Pattern of SCAN.
        count: About how many keys one call looks at.
        most: How many calls to make of each node; None for as many as it has pages.
    """
    for node in clients_of(client).values():
        yield from islice(_scan(node, pattern, count), most)


def _scan(node: Redis, pattern: str, count: int) -> Iterator[list[bytes | str]]:
    cursor = -1
    while cursor:
        cursor, found = node.scan(max(cursor, 0), match=as_bytes(pattern), count=count)
        yield found
