"""Reads and writes the part of a broker URL that names several nodes of a cluster: ``host1:7000,host2:7001``."""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from kombu_delayq.errors import InvalidBrokerURL

DEFAULT_PORT = 6379

#: Our schemes for a cluster.
SCHEMES = ("delayq+cluster", "delayqs+cluster")

_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\],/@?#\s]+)(:(?P<port>\d+))?")

Address = tuple[str, int]


def parse(hosts: str, port: int | None = None) -> list[Address]:
    """Returns hosts and ports of a list of nodes.

    Args:
        hosts: The list, with commas.
        port: Port of those that have none; by default that of Redis.

    Raises:
        InvalidBrokerURL: The list cannot be read.
    """
    found = []
    for part in hosts.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None or not 0 < int(match["port"] or port or DEFAULT_PORT) < 65536:
            raise InvalidBrokerURL(
                f"the broker URL names the node {part.strip()!r} of a cluster; write "
                "delayq+cluster://host1:6379,host2:6379/0"
            )
        found.append((match["host"].strip("[]"), int(match["port"] or port or DEFAULT_PORT)))
    return found


def written(addresses: Iterable[Address]) -> str:
    """Returns a list of nodes as text."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def with_one_host(url: str) -> str:
    """Returns a URL whose list of nodes looks like the name of one host, because kombu reads only such URLs."""
    scheme, separator, rest = url.partition("://")
    at = min((rest.find(char) for char in "/?#" if char in rest), default=len(rest))
    login, mark, hosts = rest[:at].rpartition("@")
    return f"{scheme}{separator}{login}{mark}{quote(unquote(hosts), safe='')}{rest[at:]}"
