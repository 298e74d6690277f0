"""Keeps a connection on this transport, whatever kombu does with its broker URL.

kombu takes the transport from the scheme when it switches to the next URL of a list. It turns TLS on for the scheme
``rediss`` alone, and it ignores what stands behind a ``+``. So a transport named by its dotted path could end in stock
behaviour, without TLS, or on localhost. ``settle`` reads the URL itself, so that none of this can happen.
"""

import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlparse

from kombu import connection, transport
from kombu.log import get_logger
from kombu.utils.url import as_url, maybe_sanitize_url, parse_url

from kombu_delayq.errors import InvalidBrokerURL

logger = get_logger(__name__)

#: Warnings that this process has logged.
_warned: set[str] = set()

_PLAIN = "kombu_delayq.transport:Transport"
_SENTINEL = "kombu_delayq.transport:SentinelTransport"

#: The stock scheme that means the same, by our scheme.
STOCK_SCHEMES = {"delayq": "redis", "delayqs": "rediss", "delayq+sentinel": "sentinel", "delayq+socket": "socket"}
OUR_SCHEMES = {stock: ours for ours, stock in STOCK_SCHEMES.items()}

#: Parameters of a connection that the parts or the query of a URL may set. Source: kombu.Connection
_PARAMETERS = {"port", "userid", "password", "virtual_host", "ssl", "connect_timeout", "credential_provider"}


class _KnownAs(str):
    """A transport name that stock tools know. Unpickled with its connection, it becomes the name of our transport."""

    def __new__(cls, name: str, transport: str) -> "_KnownAs":
        known = super().__new__(cls, name)
        known.transport = transport
        return known

    transport: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self.transport,)


class _SentinelHost(str):
    """Host of a Sentinel. kombu sets the transport of a clone before ``settle`` runs; this type marks a Sentinel's."""

    __slots__ = ()


def register() -> None:
    """Makes our schemes known to kombu."""
    transport.TRANSPORT_ALIASES.update(
        {scheme: _SENTINEL if scheme == "delayq+sentinel" else _PLAIN for scheme in STOCK_SCHEMES}
    )
    plain, sentinel = _KnownAs("redis", _PLAIN), _KnownAs("sentinel", _SENTINEL)
    connection.resolve_aliases.update({"delayq": plain, "delayqs": _KnownAs("rediss", _PLAIN), _PLAIN: plain})
    connection.resolve_aliases.update({"delayq+sentinel": sentinel, _SENTINEL: sentinel})


def split(given: str | Sequence[str]) -> list[str]:
    """Returns the URLs of ``broker_url``, which may be one, several separated by ``;``, or a sequence."""
    return [url.strip() for urls in ([given] if isinstance(given, str) else given) for url in urls.split(";")]


def ours(given: str | Sequence[str]) -> str:
    """Returns broker URLs, separated by ``;``, with our schemes in place of the stock ones.

    ``rediss`` stays, because it means the same with this transport's dotted path as in a stock app: the server's
    certificate is not checked unless the app asks for it.
    """
    schemes = {**OUR_SCHEMES, "redis+socket": "delayq+socket", "rediss": "rediss"}
    return ";".join(_with_scheme(url, schemes) for url in split(given))


def settle(client: Any, *, sentinel: bool = False) -> str:
    """Gives a connection the host, port, credentials and TLS of its URL, and keeps it on this transport.

    Args:
        client: A ``kombu.Connection`` whose URL kombu has not parsed, or one that this function has settled before.
        sentinel: Whether the connection names the transport for Sentinel.

    Returns:
        The stock scheme of the same meaning: ``redis``, ``rediss``, ``sentinel`` or ``socket``.

    Raises:
        InvalidBrokerURL: The URL, or one of its alternates, would not lead to this transport.
    """
    _check_scheme(client.hostname or "")
    given = urlparse(client.hostname).scheme if "://" in (client.hostname or "") else ""
    scheme = _meant(client, given, sentinel)
    _settle_alternates(client, scheme)
    if given and scheme != "socket":
        _take(client, parse_url(client.hostname))
    client.uri_prefix = None
    if scheme == "rediss" or client.ssl:
        first = client._initial_params
        _take_tls(client, checked="delayqs" in (given, first["transport"], _scheme(first["hostname"] or "")))
    if scheme == "sentinel":
        client.transport_cls = _SENTINEL
        client.hostname = _SentinelHost(client.hostname or "localhost")
    return "rediss" if client.ssl and scheme == "redis" else scheme


def describe(client: Any, scheme: str, include_password: bool = False, mask: str = "**") -> str:
    """Returns a settled connection as the URL that stock tools such as Flower know."""
    if scheme == "socket":
        return "redis+" + str(client.hostname if include_password else maybe_sanitize_url(client.hostname, mask))
    password: Any = client.password
    if include_password and callable(password):
        password = password()
    uri: str = as_url(
        scheme,
        client.hostname or "localhost",
        client.port or client.transport.default_port,
        client.userid,
        password if include_password or not password else mask,
        quote(client.virtual_host or "/"),
        sanitize=not include_password,
        mask=mask,
    )
    return uri


class _OurAlternates:
    """kombu's cycle of alternates, but with our schemes, because kombu takes the transport from the scheme."""

    def __init__(self, urls: Iterator[str]) -> None:
        self._urls = urls

    def __iter__(self) -> "_OurAlternates":
        return self

    def __next__(self) -> str:
        return _with_scheme(next(url for url in self._urls if url.strip()), OUR_SCHEMES)


def _check_scheme(url: str) -> None:
    """Refuses a URL without a scheme: kombu would take all of it for the name of a host.

    A host name alone passes, and so does an IPv6 address.
    """
    url = url.strip()
    if "://" in url or not ({*"/@?"} & {*url} or "]:" in url or url.count(":") == 1):
        return
    scheme, slash, rest = url.partition(":/")
    if not slash or scheme.lower() not in {*STOCK_SCHEMES, *OUR_SCHEMES}:
        scheme, rest = ("redis", url.lstrip("/")) if url.startswith("//") or url[:1] != "/" else ("delayq+socket", url)
    rest = rest.partition("?")[0]
    # A password, whatever characters it has, ends at the last @.
    written = f"{scheme}://{'**@' * ('@' in rest)}{rest.rpartition('@')[2]}"
    raise InvalidBrokerURL(f"the scheme of the broker URL is missing: write {written}")


def _meant(client: Any, given: str, sentinel: bool) -> str:
    """Returns the stock scheme that a connection means if its URL has the scheme ``given``."""
    if client.uri_prefix:
        given = f"{client.uri_prefix}+{given}"
    if not given:
        if sentinel or isinstance(client.hostname, _SentinelHost):
            return "sentinel"
        scheme = STOCK_SCHEMES.get(str(client.transport_cls), "redis")
        if scheme == "socket" or (client.alt and not client.hostname):
            raise InvalidBrokerURL("the broker URL names neither a host nor a socket")
        return scheme
    scheme = STOCK_SCHEMES.get(given, given)
    if scheme not in OUR_SCHEMES or (sentinel and scheme != "sentinel"):
        instead = _instead("sentinel" if sentinel else given)
        raise InvalidBrokerURL(
            f"broker URL {given}://… cannot be used{' with Sentinel' * sentinel}{instead and '; write ' + instead}. "
            f"kombu-delayq takes {', '.join([*STOCK_SCHEMES, *OUR_SCHEMES])}"
        )
    return scheme


def _instead(given: str) -> str:
    """Returns a URL's beginning to write in place of a scheme that kombu does not know; empty without a good guess."""
    tls, kind = given.startswith(("delayqs", "rediss")), given.rpartition("+")[2]
    kind = STOCK_SCHEMES.get(kind, kind)
    if tls and kind == "redis":
        kind = "rediss"
    with_tls = " and the setting broker_use_ssl" if tls and kind == "sentinel" else ""
    return f"{OUR_SCHEMES[kind]}://…{with_tls}" if kind in OUR_SCHEMES else ""


def _settle_alternates(client: Any, scheme: str) -> None:
    """Keeps each switch to an alternate on this transport, and refuses alternates for which that is impossible."""
    urls = [url for url in client.alt if url.strip()]
    found = {_scheme(url) for url in urls if "://" in url or scheme == "sentinel"}
    kinds = {STOCK_SCHEMES.get(name, name) for name in found}
    settled = {"rediss"} if scheme == "redis" and client.ssl else set()
    if len(kinds) > 1 or kinds - settled - {scheme} or (scheme == "socket" and len(urls) > 1):
        schemes = ", ".join(f"{name}://…" if name else "one without a scheme" for name in sorted(found))
        raise InvalidBrokerURL(
            f"a list of broker URLs must be all delayq://, all delayqs:// or all delayq+sentinel://; found {schemes}"
        )
    for url in urls:
        _check_scheme(url)
    # SentinelChannel finds its nodes among the alternates, by the stock scheme.
    client.alt[:] = [_with_scheme(url, STOCK_SCHEMES if scheme == "sentinel" else {}) for url in urls]
    if client.cycle is not None and not isinstance(client.cycle, _OurAlternates):
        client.cycle = _OurAlternates(client.cycle)


def _take(client: Any, url: dict[str, Any]) -> None:
    """Sets the parameters of a parsed URL, as kombu does with the URLs that it parses."""
    host = url.pop("hostname")
    del url["transport"]
    unknown = {name for name in url if name not in _PARAMETERS or not hasattr(client, name)}
    if unknown:
        raise InvalidBrokerURL(f"broker URL has parameters that kombu does not know: {', '.join(sorted(unknown))}")
    if not isinstance(url.get("ssl", {}), Mapping):
        raise InvalidBrokerURL(
            "broker URL has the parameter ssl; write delayqs://…, or parameters such as ssl_ca_certs"
        )
    client.hostname = host
    for name, value in url.items():
        if value is not None:
            setattr(client, name, value)


def _take_tls(client: Any, checked: bool) -> None:
    if client.ssl is True:  # kombu would drop it
        client.ssl, checked = {}, True
    if checked:
        # Also the name: before version 6 the Redis client does not check it by itself.
        client.ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True, **(client.ssl or {})}
        if client.ssl["ssl_cert_reqs"] in (ssl.CERT_NONE, "none"):
            client.ssl["ssl_check_hostname"] = False
    elif not client.ssl:
        warn_once("rediss:// without TLS options does not check the server's certificate, as in stock kombu")
        client.ssl = {"ssl_cert_reqs": ssl.CERT_NONE}
    client._initial_params["ssl"] = client.ssl  # a switch to an alternate starts from these


def warn_once(text: str) -> None:
    """Warns once in a process. Until a log is set up, it may warn again: a worker connects before that."""
    if text not in _warned:
        logger.warning("%s", text)
        if _has_handler(logger):
            _warned.add(text)


def _has_handler(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _with_scheme(url: str, schemes: dict[str, str]) -> str:
    _, separator, rest = url.strip().partition("://")
    return schemes.get(_scheme(url), _scheme(url)) + separator + rest if separator else url.strip()


def _scheme(url: str) -> str:
    return url.strip().partition("://")[0].lower() if "://" in url else ""
