"""The schemes of broker URLs, and the transports they stand for."""

from collections.abc import Sequence
from typing import Any

from kombu import connection, transport

from kombu_delayq.urls import hosts

PLAIN = "kombu_delayq.transport:Transport"
SENTINEL = "kombu_delayq.transport:SentinelTransport"
#: The dotted path of the transport for a cluster.
CLUSTER = "kombu_delayq.cluster:Transport"

#: The schemes for a cluster. Stock kombu has none.
CLUSTER_SCHEMES = hosts.SCHEMES
#: The stock scheme that means the same, by our scheme.
STOCK_SCHEMES = {"delayq": "redis", "delayqs": "rediss", "delayq+sentinel": "sentinel", "delayq+socket": "socket"}
OUR_SCHEMES = {stock: ours for ours, stock in STOCK_SCHEMES.items()}

#: What to write in place of a scheme that is no Redis, where it is clear what was meant.
INSTEAD = {
    "memory": "no broker_transport in the settings of tests; or leave both, and use the pytest fixture delayed_tasks, "
    "which needs no setting"
}

#: With the transport for a cluster, URLs may have the schemes of one server.
IN_CLUSTER = {
    **dict.fromkeys(("redis", "delayq"), "delayq+cluster"),
    **dict.fromkeys(("rediss", "delayqs"), "delayqs+cluster"),
}


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
    transport.TRANSPORT_ALIASES.update(
        {scheme: SENTINEL if scheme == "delayq+sentinel" else PLAIN for scheme in STOCK_SCHEMES}
    )
    plain, sentinel = _KnownAs("redis", PLAIN), _KnownAs("sentinel", SENTINEL)
    connection.resolve_aliases.update({"delayq": plain, "delayqs": _KnownAs("rediss", PLAIN), PLAIN: plain})
    connection.resolve_aliases.update({"delayq+sentinel": sentinel, SENTINEL: sentinel})
    transport.TRANSPORT_ALIASES.update(dict.fromkeys(CLUSTER_SCHEMES, CLUSTER))
    cluster = _KnownAs("redis", CLUSTER)
    connection.resolve_aliases.update({**dict.fromkeys(CLUSTER_SCHEMES, cluster), CLUSTER: cluster})


def is_cluster(client: Any) -> bool:
    """Whether a connection, settled or not, is to a cluster."""
    if isinstance(client.hostname, ClusterHost):
        return True
    name = str(client.transport_cls)
    url = f"{client.uri_prefix}+{client.hostname}" if client.uri_prefix else str(client.hostname)
    return name == CLUSTER or name in CLUSTER_SCHEMES or scheme_of(url) in CLUSTER_SCHEMES


def transport_of(url: str) -> str:
    """Returns the dotted path of the transport for a broker URL, which may be a list separated by ``;``."""
    scheme = scheme_of(url)
    if scheme in CLUSTER_SCHEMES:
        return CLUSTER
    return SENTINEL if STOCK_SCHEMES.get(scheme, scheme) == "sentinel" else PLAIN


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
