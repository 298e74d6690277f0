"""How a broker URL leads to this transport, through every turn that kombu takes with one.

kombu takes the transport from the scheme of a URL when it switches to the next of a list, turns TLS on by the
scheme ``rediss`` alone, and does not look behind a ``+``. So a transport named by its dotted path would end in
stock behaviour, without TLS, or on localhost. ``settle`` reads the URL itself and leaves a connection that cannot.
"""

import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlparse

from kombu import connection, transport
from kombu.log import get_logger
from kombu.utils.url import as_url, parse_url

from kombu_delayq.errors import InvalidBrokerURL

logger = get_logger(__name__)

_PLAIN = "kombu_delayq.transport:Transport"
_SENTINEL = "kombu_delayq.transport:SentinelTransport"

#: Our schemes, and the stock scheme of the same meaning.
STOCK_SCHEMES = {"delayq": "redis", "delayqs": "rediss", "delayq+sentinel": "sentinel", "delayq+socket": "socket"}
OUR_SCHEMES = {stock: ours for ours, stock in STOCK_SCHEMES.items()}

#: What a URL may set of a connection, in its parts or its query. Source: kombu.Connection
_PARAMETERS = {"port", "userid", "password", "virtual_host", "ssl", "connect_timeout", "credential_provider"}


def register() -> None:
    """Makes our schemes known to kombu."""
    transport.TRANSPORT_ALIASES.update(
        {scheme: _SENTINEL if scheme == "delayq+sentinel" else _PLAIN for scheme in STOCK_SCHEMES}
    )
    connection.resolve_aliases.update({"delayq": "redis", "delayqs": "rediss", "delayq+sentinel": "sentinel"})
    connection.resolve_aliases.update({_PLAIN: "redis", _SENTINEL: "sentinel"})


def ours(url: str) -> str:
    """Returns a broker URL, or several separated by ``;``, with our schemes in place of the stock ones."""
    return ";".join(_with_scheme(each, {**OUR_SCHEMES, "redis+socket": "delayq+socket"}) for each in url.split(";"))


def settle(client: Any) -> str:
    """Gives a connection the host, port, credentials and TLS that its URL means, and keeps it on this transport.

    Args:
        client: A ``kombu.Connection`` whose URL kombu has not parsed, or one that was settled before.

    Returns:
        The stock scheme of the same meaning: ``redis``, ``rediss``, ``sentinel`` or ``socket``.

    Raises:
        InvalidBrokerURL: The URL is not one of Redis, or has ``delayq+`` before a scheme that needs none.
    """
    given = urlparse(client.hostname).scheme if "://" in (client.hostname or "") else ""
    scheme = _meant(client, given)
    client.uri_prefix = None
    if given and scheme != "socket":
        _take(client, parse_url(client.hostname))
    if scheme == "rediss" or client.ssl:
        _take_tls(client, checked="delayqs" in (given, client.transport_cls))
    if scheme == "sentinel":
        client.transport_cls = _SENTINEL
        # SentinelChannel finds its nodes among the alternates, by the stock scheme.
        client.alt[:] = [_with_scheme(url, STOCK_SCHEMES) for url in client.alt]
    if client.cycle is not None and not isinstance(client.cycle, _OurAlternates):
        client.cycle = _OurAlternates(client.cycle)
    return "rediss" if client.ssl and scheme == "redis" else scheme


def describe(client: Any, scheme: str, include_password: bool = False, mask: str = "**") -> str:
    """Returns a settled connection as the URL that stock tools such as Flower know."""
    if scheme == "socket":
        return "redis+" + str(client.hostname)
    password: Any = client.password
    if include_password and callable(password):
        password = password()
    uri: str = as_url(
        scheme,
        client.hostname or "localhost",
        client.port,
        client.userid,
        password if include_password or not password else mask,
        quote(client.virtual_host or "/"),
        sanitize=not include_password,
        mask=mask,
    )
    return uri


class _OurAlternates:
    """kombu's cycle of alternates, with our schemes: kombu takes the transport from them."""

    def __init__(self, urls: Iterator[str]) -> None:
        self._urls = urls

    def __iter__(self) -> "_OurAlternates":
        return self

    def __next__(self) -> str:
        return _with_scheme(next(self._urls), OUR_SCHEMES)


def _meant(client: Any, given: str) -> str:
    """Tells the stock scheme that a connection means, whose URL has the scheme ``given``."""
    if client.uri_prefix:
        given = f"{client.uri_prefix}+{given}"
    scheme = given or str(client.transport_cls)
    scheme = STOCK_SCHEMES.get(scheme, scheme)
    if scheme in OUR_SCHEMES:
        return scheme
    if given:
        stock = given.rpartition("+")[2]
        raise InvalidBrokerURL(
            f"broker URL {given}://… cannot be used"
            + (f"; write {OUR_SCHEMES[stock]}://…" if stock in OUR_SCHEMES else "")
            + f". kombu-delayq takes {', '.join([*STOCK_SCHEMES, *OUR_SCHEMES])}"
        )
    return "sentinel" if scheme == _SENTINEL else "redis"


def _take(client: Any, url: dict[str, Any]) -> None:
    """Sets what a parsed URL says, as kombu does with the URLs that it parses."""
    client.hostname = url.pop("hostname")
    del url["transport"]
    unknown = url.keys() - _PARAMETERS
    if unknown:
        raise InvalidBrokerURL(f"broker URL has parameters that kombu does not know: {', '.join(sorted(unknown))}")
    for name, value in url.items():
        if value is not None:
            setattr(client, name, value)


def _take_tls(client: Any, checked: bool) -> None:
    if client.ssl is True:  # kombu would drop it
        client.ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    if not client.ssl:
        if not checked:
            logger.warning("rediss:// without TLS options does not check the server's certificate, as in stock kombu")
        client.ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED if checked else ssl.CERT_NONE}
    client._initial_params["ssl"] = client.ssl  # what a switch to an alternate starts from


def _with_scheme(url: str, schemes: dict[str, str]) -> str:
    scheme, mark, rest = url.partition("://")
    return schemes.get(scheme, scheme) + mark + rest
