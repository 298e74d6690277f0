"""Broker URLs of clusters: what they lead to, how they are shown, and which are refused. Connects to nothing."""

import pickle
import ssl
from typing import Any

import pytest
import redis
from kombu import Connection

from kombu_delayq import InvalidBrokerURL
from kombu_delayq.cluster import Transport

PARAMS = {"connection_class": redis.Connection, "password": "secret"}
DOTTED = "kombu_delayq.cluster:Transport"


@pytest.mark.parametrize(
    ("url", "options", "seeds"),
    [
        ("delayq+cluster://h1:7000,h2", {}, [("h1", 7000), ("h2", 6379)]),
        ("delayq+cluster://h1", {}, [("h1", 6379)]),
        ("delayq+cluster://[::1]:7000/0", {}, [("::1", 7000)]),
        ("delayqs+cluster://[fe80::1]", {}, [("fe80::1", 6379)]),
        ("delayq+cluster://h1:7000/0", {"transport": "kombu_delayq.transport:Transport"}, [("h1", 7000)]),
        ("delayq+cluster://[::1]:7000,[::2]", {}, [("::1", 7000), ("::2", 6379)]),
        ("redis://h1:7000,h2:7001/0", {"transport": DOTTED}, [("h1", 7000), ("h2", 7001)]),
        ("delayq://h1", {"transport": DOTTED}, [("h1", 6379)]),
        ("delayqs+cluster://h1,h2", {}, [("h1", 6379), ("h2", 6379)]),
    ],
)
def test_names_the_nodes(url: str, options: dict[str, Any], seeds: list[tuple[str, int]]) -> None:
    """A clone, and a connection that was pickled, name the same nodes."""
    connection = Connection(url, **options)
    assert isinstance(connection.transport, Transport)
    assert [tuple(seed) for seed in connection.transport.seeds] == seeds
    # Pools, such as Celery's of producers, make their connections as clones of one that nobody has used.
    clones = (connection.clone(), connection.clone().clone())
    for other in (*clones, pickle.loads(pickle.dumps(connection))):
        assert isinstance(other.transport, Transport)
        assert [tuple(seed) for seed in other.transport.seeds] == seeds
        assert bool(other.ssl) == bool(connection.ssl) == url.startswith("delayqs")
    for clone in clones:
        assert clone.transport.topology_for(PARAMS) is connection.transport.topology_for(PARAMS)


def test_takes_the_login_and_hides_the_password() -> None:
    """The password may have characters that a URL writes with percent signs."""
    connection = Connection("delayq+cluster://me:p%40ss,word@h1:7000,h2:7001/0")
    assert connection.transport
    assert (connection.userid, connection.password) == ("me", "p@ss,word")
    assert connection.as_uri() == "delayq+cluster://me:**@h1:7000,h2:7001/0"
    assert "p%40ss%2Cword" in connection.as_uri(include_password=True)
    again = Connection(connection.as_uri(include_password=True))
    assert [seed.port for seed in again.transport.seeds] == [7000, 7001]
    assert again.password == "p@ss,word"


def test_checks_the_certificate() -> None:
    """The scheme alone asks for TLS, with the certificate and the host's name checked, as ``delayqs`` does."""
    connection = Connection("delayqs+cluster://h1,h2/0?ssl_ca_certs=/ca.pem")
    assert connection.transport
    assert connection.ssl["ssl_cert_reqs"] == ssl.CERT_REQUIRED
    assert connection.ssl["ssl_check_hostname"] is True
    assert connection.ssl["ssl_ca_certs"] == "/ca.pem"
    assert connection.as_uri().startswith("delayqs+cluster://")
    assert connection.clone().ssl == connection.ssl


def test_switches_to_another_cluster() -> None:
    """A list of URLs names clusters that take each other's place; each may name several nodes."""
    connection = Connection("delayq+cluster://h1:1,h2:2;delayq+cluster://:pw@h3:3,h4:4")
    assert [seed.port for seed in connection.transport.seeds] == [1, 2]
    connection.maybe_switch_next()
    assert [seed.port for seed in connection.transport.seeds] == [3, 4]
    assert connection.password == "pw"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("delayq+cluster://h1:7000;delayq+cluster://h2:7001", {}),
        ("delayqs+cluster://h1:7000/0;delayqs+cluster://h2:7001/0", {}),
        ("redis://h1:7000/0;redis://h2:7001/0", {"transport": DOTTED}),
    ],
)
def test_switches_between_clusters_of_one_node_each(url: str, options: dict[str, Any]) -> None:
    """As with the configuration endpoints of a managed service."""
    connection = Connection(url, **options)
    assert [tuple(seed) for seed in connection.transport.seeds] == [("h1", 7000)]
    connection.maybe_switch_next()
    assert [tuple(seed) for seed in connection.transport.seeds] == [("h2", 7001)]


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("delayq+cluster+x://h1", {}, "kombu-delayq takes"),
        ("delayq+cluster://h1/1", {}, "only the database 0"),
        ("socket:///tmp/redis.sock", {"transport": DOTTED}, "over TCP"),
        ("sentinel://h1", {"transport": DOTTED}, "no Sentinels"),
        ("delayq+cluster://h1:x,h2", {}, "names the node 'h1:x'"),
        ("delayq+cluster://h1,,h2", {}, "names the node ''"),
        ("delayq+cluster://10.0.0.1:7000:7001,h2", {}, "names the node '10.0.0.1:7000:7001'"),
        ("delayq+cluster://::1:7000,::2:7001", {}, "names the node '::1:7000'"),
        ("delayq+cluster://h1;delayq+sentinel://h2", {}, "all of one cluster scheme"),
    ],
)
def test_refuses_in_words(url: str, options: dict[str, Any], words: str) -> None:
    """What a cluster has not, is said with what to write instead."""
    with pytest.raises(InvalidBrokerURL, match=words):
        _ = Connection(url, **options).transport
