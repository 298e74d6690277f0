"""Requests that a page of another site makes a browser send, and names that lead here by a trick."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

from celery_ext.serve.problems import Problem

#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: An IPv6 address in brackets, or a name, and a port.
_HOST = re.compile(r"(?:\[([^]]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?")
#: By one of these a browser can be told from other programs.
BROWSER_HEADERS = frozenset({"origin", "sec-fetch-site"})
#: What ``Sec-Fetch-Site`` says of a request of our own page, and of an address that somebody typed.
_OWN_SITE = frozenset({"same-origin", "none"})


def check_host(host: str, allowed: Iterable[str]) -> None:
    """Refuses a request that was sent to a name which is not ours.

    A page of another site can give its own name the address of this machine. To the browser the answers are then those
    of that site, and its scripts may read them. An address in place of a name cannot be given away like that.

    Args:
        host: The header ``Host``.
        allowed: Patterns of further names, such as ``*.example.org``.

    Raises:
        Problem: 421.
    """
    name = _name_of(host)
    if name == "localhost" or name.endswith(".localhost") or _is_address(name):
        return
    if not any(fnmatchcase(name, pattern.lower()) for pattern in allowed):
        raise Problem(
            421, "the request names a host that this server does not go by; see --allowed-host", "unknown-host"
        )


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuses a request that a page of another site may have caused.

    Browsers say in ``Sec-Fetch-Site`` who caused a request, on https and on localhost. Elsewhere ``Origin`` has to be
    the host that was asked. A request with neither comes from a program, which can send a token, or ``Origin``.
    A request that changes nothing is refused only where a script of another site sent it: its answer would be of no use
    to the script, and a search costs Redis something.

    Args:
        method: Of HTTP.
        headers: By name in small letters.

    Raises:
        Problem: 403.
    """
    site = headers.get("sec-fetch-site")
    if method in SAFE:
        refused = site not in (None, *_OWN_SITE) and headers.get("sec-fetch-mode", "navigate") != "navigate"
    elif site is not None:
        refused = site not in _OWN_SITE
    else:
        origin = headers.get("origin", "")
        refused = not (authority := _authority_of(origin)) or authority != headers.get("host", "").lower()
    if refused:
        raise Problem(403, "the request comes from another site, or does not say from which", "cross-site")


def _authority_of(origin: str) -> str:
    """Returns host and port of an origin as a browser would write them in ``Host``; nothing for ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name_of(host: str) -> str:
    """Returns the name in a header ``Host``, without port, dot at the end and brackets."""
    found = _HOST.fullmatch(host.lower())
    return (found[1] or found[2].rstrip(".")) if found else ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
