"""Proxies in front of the server, and what they may say of a request."""

import logging
import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock

from starlette.requests import Request

from celery_ext.serve.problems import Problem, bad_request

logger = logging.getLogger(__name__)

#: Longest name of a user, in characters.
_LONGEST_NAME = 128
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


class TrustedProxies:
    """The peers that may name users, and the prefix and scheme by which browsers call the server.

    Args:
        addresses: Addresses or networks, such as ``10.0.0.0/8``.
        user_header: Name of the header with the user's name; None without such a proxy.

    Raises:
        ValueError: One is no address and no network.
    """

    def __init__(self, addresses: Iterable[str], user_header: str | None) -> None:
        self._networks = [ip_network(address, strict=False) for address in addresses]
        self._header = user_header
        self._lock = Lock()
        self._warned = False

    def trusts(self, peer: str | None) -> bool:
        """Whether a peer, named by its address, is one of the proxies."""
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def user_of(self, request: Request) -> str | None:
        """Returns the user whom a proxy names; None if no proxy names one.

        Raises:
            Problem: 400: the header came twice, or its value is no name. A proxy that passes on what a client sent,
                beside its own header, would let the client choose.
        """
        names = request.headers.getlist(self._header) if self._header else []
        if not names:
            return None
        if not self.trusts(_peer_of(request)):
            self._warn_once(_peer_of(request))
            return None
        [name, *others] = names
        if others or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise Problem(400, f"the proxy sent no single name in {self._header}", "bad-user")
        return name.strip()

    def prefix_of(self, request: Request) -> str | None:
        """Returns the prefix that a proxy took from the path; None if no proxy says so.

        Raises:
            Problem: 400: it is no path.
        """
        prefix = self._said(request, "x-forwarded-prefix")
        if prefix is not None and not _PREFIX.fullmatch(prefix.rstrip("/")):
            raise bad_request("X-Forwarded-Prefix is no path")
        return None if prefix is None else prefix.rstrip("/")

    def scheme_of(self, request: Request) -> str | None:
        """Returns the scheme by which a browser called a proxy; None if no proxy says so."""
        scheme = self._said(request, "x-forwarded-proto")
        return scheme if scheme in ("http", "https") else None

    def _said(self, request: Request, header: str) -> str | None:
        """Returns what the nearest proxy says; None if it is not one of ours."""
        if not self._networks or header not in request.headers or not self.trusts(_peer_of(request)):
            return None
        return request.headers.getlist(header)[-1].rpartition(",")[2].strip()

    def _warn_once(self, peer: str | None) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            logger.warning("the header %s of %s is ignored: it is no --trusted-proxy", self._header, peer)


def _peer_of(request: Request) -> str | None:
    return request.client.host if request.client else None
