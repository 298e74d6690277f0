"""Keeps a connection on this transport, whatever kombu does with its broker URL.

kombu takes the transport from the scheme when it switches to the next URL of a list. It turns TLS on for the scheme
``rediss`` alone, and it ignores what stands behind a ``+``. So a transport named by its dotted path could end in stock
behaviour, without TLS, or on localhost. ``configure`` reads the URL itself, so that none of this can happen.
"""

import logging
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlparse

from kombu import connection, transport
from kombu.log import get_logger
from kombu.utils.url import as_url, maybe_sanitize_url, parse_url

from kombu_delayq.errors import InvalidBrokerURL

DEFAULT_PORT = 6379

_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\],/@?#\s]+)(:(?P<port>\d+))?")

Address = tuple[str, int]

PLAIN = "kombu_delayq.transport:Transport"
SENTINEL = "kombu_delayq.transport:SentinelTransport"
#: The dotted path of the transport for a cluster.
CLUSTER = "kombu_delayq.cluster:Transport"
#: That of what fetches messages where keys are in hash slots, also of one server.
SLOT_SERVER = "kombu_delayq.cluster:SlotServer"


class Scheme(NamedTuple):
    """A scheme of broker URLs that only we have.

    Attributes:
        stock: The stock scheme that means the same; empty for a cluster, which stock kombu does not know.
        transport: The dotted path of its transport.
        known_as: The stock scheme that tools take it for.
        checks: Whether it means TLS, with the server's certificate and name checked.
        of_cluster: The scheme that stands for it where the transport is that for a cluster; empty for none.
    """

    stock: str
    transport: str
    known_as: str
    checks: bool = False
    of_cluster: str = ""


#: The schemes. Where several have the same stock scheme, the first stands for it; clients of Valkey use the others.
SCHEMES = {
    "delayq": Scheme("redis", PLAIN, "redis", of_cluster="delayq+cluster"),
    "delayqs": Scheme("rediss", PLAIN, "rediss", checks=True, of_cluster="delayqs+cluster"),
    "delayq+sentinel": Scheme("sentinel", SENTINEL, "sentinel"),
    "delayq+socket": Scheme("socket", PLAIN, ""),
    "delayq+cluster": Scheme("", CLUSTER, "redis"),
    "delayqs+cluster": Scheme("", CLUSTER, "redis", checks=True),
    "valkey": Scheme("redis", PLAIN, "redis", of_cluster="delayq+cluster"),
    "valkeys": Scheme("rediss", PLAIN, "rediss", checks=True, of_cluster="delayqs+cluster"),
}
#: Those for a cluster.
CLUSTER_SCHEMES = tuple(name for name, scheme in SCHEMES.items() if not scheme.stock)
#: Those that mean TLS with checks.
CHECKED_SCHEMES = frozenset(name for name, scheme in SCHEMES.items() if scheme.checks)
#: The stock scheme that means the same, by our scheme; and the other way round.
STOCK_SCHEMES = {name: scheme.stock for name, scheme in SCHEMES.items() if scheme.stock}
OUR_SCHEMES = {stock: ours for ours, stock in reversed(STOCK_SCHEMES.items())}
#: With the transport for a cluster, URLs may have the schemes of one server.
IN_CLUSTER = {
    name: scheme.of_cluster for ours, scheme in SCHEMES.items() if scheme.of_cluster for name in (ours, scheme.stock)
}

#: What to write in place of a scheme that is no Redis, where it is clear what was meant.
INSTEAD = {
    "memory": "no broker_transport in the settings of tests; or leave both, and use the pytest fixture delayed_tasks, "
    "which needs no setting"
}

logger = get_logger(__name__)

#: Warnings that this process has logged.
_warned: set[str] = set()

#: Parameters of a connection that the parts or the query of a URL may set. Source: kombu.Connection
_PARAMETERS = {"port", "userid", "password", "virtual_host", "ssl", "connect_timeout", "credential_provider"}

#: What stands before the query of a URL, as kombu names it.
_PARTS = frozenset({"transport", "hostname", "port", "userid", "password", "virtual_host"})


#: Of a URL that is cut within its password.
_UNREADABLE = (
    "the broker URL cannot be read: what stands in the place of its port is no number, or an @ behind its host. Write "
    "special characters of a password percent-encoded, such as %23 for # and %2F for /"
)


class _SentinelHost(str):
    """Host of a Sentinel; kombu sets the transport of a clone before ``configure`` runs."""

    __slots__ = ()


def configure(client: Any, *, sentinel: bool = False, cluster: bool = False) -> str:
    """Gives a connection the host, port, credentials and TLS of its URL, and keeps it on this transport.

    A connection to a cluster gets a list of hosts, unless there is only one.

    Args:
        client: A ``kombu.Connection`` whose URL kombu has not parsed, or one that this function has settled before.
        sentinel: Whether the connection names the transport for Sentinel.
        cluster: Whether the connection is to a cluster.

    Returns:
        The stock scheme of the same meaning: ``redis``, ``rediss``, ``sentinel`` or ``socket``; of a cluster our own.

    Raises:
        InvalidBrokerURL: The URL, or one of its alternates, would not lead to this transport.
    """
    # Threads share connections that nobody has settled yet: each reads one state, and none sees half of another's work.
    settled = _snapshot(client)
    before = dict(vars(settled))
    scheme = _settle(settled, sentinel, cluster)
    vars(client).update({name: value for name, value in vars(settled).items() if before.get(name, before) is not value})
    return scheme


def _snapshot(client: Any) -> Any:
    """Returns an object with the fields that a connection has at this moment."""
    taken = object.__new__(type(client))
    vars(taken).update(vars(client))
    return taken


def _settle(client: Any, sentinel: bool, cluster: bool) -> str:
    """Settles a connection that no other thread knows; see ``configure``."""
    if not (cluster and "," in (client.hostname or "")):
        _check_scheme(client.hostname or "")
    given = urlparse(client.hostname).scheme if "://" in (client.hostname or "") else ""
    if client.uri_prefix:
        given = f"{client.uri_prefix}+{given}"
    scheme = _meant_of_cluster(client, given) if cluster else _meant(client, given, sentinel)
    _settle_alternates(client, scheme)
    if given and scheme != "socket":
        for url in (client.hostname, *client.alt):
            _check_query(url)
        _take(client, _parse(with_one_host(client.hostname) if cluster else client.hostname))
    client.uri_prefix = None
    if scheme in ("rediss", "delayqs+cluster") or client.ssl:
        first = client._initial_params
        named = (given, str(first["transport"]), scheme_of(first["hostname"] or ""))
        _take_tls(client, checked=not CHECKED_SCHEMES.isdisjoint(named))
    if cluster:
        _settle_nodes(client)
        return "delayqs+cluster" if client.ssl else "delayq+cluster"
    if scheme == "sentinel":
        client.transport_cls = SENTINEL
        client.hostname = _SentinelHost(client.hostname or "localhost")
    return "rediss" if client.ssl and scheme == "redis" else scheme


def describe(client: Any, scheme: str, include_password: bool = False, mask: str = "**") -> str:
    """Returns a settled connection as the URL that stock tools such as Flower know."""
    if scheme == "socket":
        return "redis+" + str(client.hostname if include_password else maybe_sanitize_url(client.hostname, mask))
    host = client.hostname or "localhost"
    several = "," in host  # the nodes of a cluster, each with its port
    password: Any = client.password
    if include_password and callable(password):
        password = password()
    uri: str = as_url(
        scheme,
        host,
        0 if several else client.port or client.transport.default_port,
        client.userid,
        password if include_password or not password else mask,
        quote(client.virtual_host or "/"),
        sanitize=not include_password,
        mask=mask,
    )
    return uri.replace(quote(host, safe=""), host, 1) if several else uri


class _OurAlternates:
    """kombu's cycle of alternates, but with our schemes, because kombu takes the transport from the scheme."""

    def __init__(self, urls: Iterator[str], *, cluster: bool = False) -> None:
        self._urls = urls
        self._cluster = cluster

    def __iter__(self) -> "_OurAlternates":
        return self

    def __next__(self) -> str:
        url = next(url for url in self._urls if url.strip())
        if self._cluster:
            return with_one_host(with_scheme(url, IN_CLUSTER))
        return with_scheme(url, OUR_SCHEMES)


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


def _check_query(url: str) -> None:
    """Refuses a URL whose password ends too early, and a query that names what has another place in a URL.

    What follows such a password would be shown as the database. kombu would raise a ``TypeError`` for the query.
    """
    try:
        parts = urlparse(url)
    except ValueError:
        raise InvalidBrokerURL(_UNREADABLE) from None
    if "@" in parts.path + parts.fragment + parts.query.partition("=")[0]:
        raise InvalidBrokerURL(_UNREADABLE)
    misplaced = _PARTS.intersection(name for name, _ in parse_qsl(parts.query))
    if misplaced:
        raise InvalidBrokerURL(
            f"the broker URL has {', '.join(sorted(misplaced))} behind a question mark; write it as in "
            "delayq://USER:PASSWORD@HOST:PORT/DATABASE"
        )


def check_socket_query(url: str, known: Set[str]) -> None:
    """Refuses a query with a name that no connection to a socket knows: it would raise a ``TypeError``."""
    _refuse_unknown({name for name, _ in parse_qsl(urlparse(url).query)} - known)


def _refuse_unknown(names: set[str]) -> None:
    if names:
        raise InvalidBrokerURL(f"broker URL has parameters that kombu does not know: {', '.join(sorted(names))}")


def _meant(client: Any, given: str, sentinel: bool) -> str:
    """Returns the stock scheme that a connection means if its URL has the scheme ``given``."""
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
            f"kombu-delayq takes {', '.join([*STOCK_SCHEMES, *CLUSTER_SCHEMES, *OUR_SCHEMES])}"
        )
    return scheme


def _meant_of_cluster(client: Any, given: str) -> str:
    """Returns our scheme of what a connection to a cluster means if its URL has the scheme ``given``."""
    if not given:
        name = str(client.transport_cls)
        return name if name in CLUSTER_SCHEMES else "delayq+cluster"
    scheme: str = IN_CLUSTER.get(given, given)
    if scheme not in CLUSTER_SCHEMES:
        why = {"socket": ": its nodes are reached over TCP", "sentinel": ": it has no Sentinels"}
        raise InvalidBrokerURL(
            f"broker URL {given}://… cannot be used with Redis Cluster{why.get(STOCK_SCHEMES.get(given, given), '')}; "
            "write delayq+cluster://host1,host2/0, or delayqs+cluster://… for TLS"
        )
    return scheme


def _settle_nodes(client: Any) -> None:
    """Checks what a settled connection to a cluster has, and gives each of its nodes a port."""
    nodes = addresses_of(client.hostname or "localhost", client.port)
    database = str(client.virtual_host or "/").strip("/")
    if database not in ("", "0"):
        raise InvalidBrokerURL(
            f"the broker URL names the database {database}, but Redis Cluster has only the database 0; write "
            "delayq+cluster://…/0, and tell apps apart by the transport option global_keyprefix"
        )
    host, client.port = (written_hosts(nodes), None) if len(nodes) > 1 else nodes[0]
    client.hostname, client.virtual_host = ClusterHost(host), "0"
    client.transport_cls = CLUSTER


def _instead(given: str) -> str:
    """Returns a URL's beginning to write in place of a scheme that kombu does not know; empty without a good guess."""
    tls, kind = given.startswith(("rediss", *CHECKED_SCHEMES)), given.rpartition("+")[2]
    kind = STOCK_SCHEMES.get(kind, kind)
    if kind == "cluster":
        return f"{CLUSTER_SCHEMES[tls]}://…"
    kind = "rediss" if tls and kind == "redis" else kind
    with_tls = " and the setting broker_use_ssl" if tls and kind == "sentinel" else ""
    return f"{OUR_SCHEMES[kind]}://…{with_tls}" if kind in OUR_SCHEMES else INSTEAD.get(given, "")


def _settle_alternates(client: Any, scheme: str) -> None:
    """Keeps each switch to an alternate on this transport, and refuses alternates for which that is impossible."""
    urls = [url for url in client.alt if url.strip()]
    found = {scheme_of(url) for url in urls if "://" in url or scheme == "sentinel"}
    cluster = scheme in CLUSTER_SCHEMES
    kinds = {(IN_CLUSTER if cluster else STOCK_SCHEMES).get(name, name) for name in found}
    settled = {"rediss"} if scheme == "redis" and client.ssl else set()
    if cluster and client.ssl:
        settled = {"delayqs+cluster"}
    if len(kinds) > 1 or kinds - settled - {scheme} or (scheme == "socket" and len(urls) > 1):
        schemes = ", ".join(f"{name}://…" if name else "one without a scheme" for name in sorted(found))
        raise InvalidBrokerURL(
            "a list of broker URLs must be all delayq://, all delayqs://, all delayq+sentinel:// or all of one cluster "
            f"scheme; found {schemes}"
        )
    for url in urls:
        _check_scheme(url)
    # SentinelChannel finds its nodes among the alternates, by the stock scheme.
    client.alt = [with_scheme(url, STOCK_SCHEMES if scheme == "sentinel" else {}) for url in urls]
    if client.cycle is not None and not isinstance(client.cycle, _OurAlternates):
        client.cycle = _OurAlternates(client.cycle, cluster=cluster)


def _parse(url: str) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = parse_url(url)
    except ValueError:  # its text has what stands in the place of the port, which may be a part of the password
        raise InvalidBrokerURL(_UNREADABLE) from None
    except KeyError as error:  # the one parameter whose value kombu looks up
        raise InvalidBrokerURL(
            f"the broker URL has ssl_cert_reqs={error.args[0]}; write required, optional or none"
        ) from None
    return parsed


def _take(client: Any, url: dict[str, Any]) -> None:
    """Sets the parameters of a parsed URL, as kombu does with the URLs that it parses."""
    host = url.pop("hostname")
    del url["transport"]
    _refuse_unknown({name for name in url if name not in _PARAMETERS or not hasattr(client, name)})
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
    client._initial_params = {**client._initial_params, "ssl": client.ssl}  # a switch to an alternate starts from these


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


class ClusterHost(str):
    """Hosts of a cluster. kombu reads the transport of a clone before it is settled; this type marks a cluster's."""

    __slots__ = ()


class _KnownAs(str):
    """A transport name that stock tools know. Unpickled with its connection, it becomes the name of our transport."""

    def __new__(cls, name: str, transport: str) -> "_KnownAs":
        known = super().__new__(cls, name)
        known.transport = transport
        return known

    transport: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self.transport,)


def register() -> None:
    """Makes our schemes known to kombu."""
    for name, scheme in SCHEMES.items():
        transport.TRANSPORT_ALIASES[name] = scheme.transport
        if scheme.known_as:
            connection.resolve_aliases[name] = _KnownAs(scheme.known_as, scheme.transport)
    for path, known_as in ((PLAIN, "redis"), (SENTINEL, "sentinel"), (CLUSTER, "redis")):
        connection.resolve_aliases[path] = _KnownAs(known_as, path)


def is_cluster(client: Any) -> bool:
    """Whether a connection, settled or not, is to a cluster."""
    client = _snapshot(client)
    if isinstance(client.hostname, ClusterHost):
        return True
    name = str(client.transport_cls)
    url = f"{client.uri_prefix}+{client.hostname}" if client.uri_prefix else str(client.hostname)
    return name == CLUSTER or name in CLUSTER_SCHEMES or scheme_of(url) in CLUSTER_SCHEMES


def split(given: str | Sequence[str]) -> list[str]:
    """Returns the URLs of ``broker_url``, which may be one, several separated by ``;``, or a sequence."""
    return [url.strip() for urls in ([given] if isinstance(given, str) else given) for url in urls.split(";")]


def ours(given: str | Sequence[str]) -> str:
    """Returns broker URLs, separated by ``;``, with our schemes in place of the stock ones.

    ``rediss`` stays, because it means the same with this transport's dotted path as in a stock app: the server's
    certificate is not checked unless the app asks for it.
    """
    schemes = {**OUR_SCHEMES, "redis+socket": "delayq+socket", "rediss": "rediss"}
    return ";".join(with_scheme(url, schemes) for url in split(given))


def with_scheme(url: str, schemes: dict[str, str]) -> str:
    """Returns a URL with the scheme that stands for its own one, if there is one."""
    _, separator, rest = url.strip().partition("://")
    return schemes.get(scheme_of(url), scheme_of(url)) + separator + rest if separator else url.strip()


def scheme_of(url: str) -> str:
    """Returns the scheme of a URL in small letters; nothing if it has none."""
    return url.strip().partition("://")[0].lower() if "://" in url else ""


def addresses_of(hosts: str, port: int | None = None) -> list[Address]:
    """Returns hosts and ports of a list of nodes.

    Args:
        hosts: The list, with commas.
        port: Port of those that have none; by default that of Redis.

    Raises:
        InvalidBrokerURL: The list cannot be read.
    """
    found = []
    with suppress(ValueError):
        hosts = f"[{IPv6Address(hosts)}]"  # kombu has taken the brackets off a single address
    for part in hosts.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None or not 0 < int(match["port"] or port or DEFAULT_PORT) < 65536:
            raise InvalidBrokerURL(
                f"the broker URL names the node {part.strip()!r} of a cluster; write "
                "delayq+cluster://host1:6379,host2:6379/0"
            )
        found.append((match["host"].strip("[]"), int(match["port"] or port or DEFAULT_PORT)))
    return found


def written_hosts(addresses: Iterable[Address]) -> str:
    """Returns a list of nodes as text."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def with_one_host(url: str) -> str:
    """Returns a URL whose list of nodes looks like the name of one host, because kombu reads only such URLs.

    A single node stays as it is: kombu would not find its port in such a name.
    """
    scheme, separator, rest = url.partition("://")
    at = min((rest.find(char) for char in "/?#" if char in rest), default=len(rest))
    login, mark, hosts = rest[:at].rpartition("@")
    if "," not in unquote(hosts):
        return url
    return f"{scheme}{separator}{login}{mark}{quote(unquote(hosts), safe='')}{rest[at:]}"
