"""Every way to write a broker URL leads to our transport, with the host and the TLS that it names, or to an error."""

import copy
import pickle
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Barrier
from time import sleep
from typing import Any, NamedTuple

import pytest
from celery import Celery
from kombu import Connection
from kombu.transport import redis as stock

from kombu_delayq import InvalidBrokerURL, transport, urls

DOTTED = "kombu_delayq.transport:Transport"
DOTTED_SENTINEL = "kombu_delayq.transport:SentinelTransport"
SECRET = "pa/ss@w:örd"
ESCAPED = "pa%2Fss%40w%3A%C3%B6rd"
LIST = "{0}://a:7001;{0}://b:7002;{0}://c:7003"
HOSTS = ("a:7001", "b:7002", "c:7003")


class Way(NamedTuple):
    """A way to write a broker URL: the URL, ``broker_transport``, and what it means."""

    url: Any
    transport: str | None
    kind: str
    hosts: tuple[str, ...] = ("a:7001",)


def _ways() -> dict[str, Way]:
    ways = {}
    schemes = {"delayq": "redis", "delayqs": "rediss", "delayq+sentinel": "sentinel"}
    for ours, known in (schemes | {"valkey": "redis", "valkeys": "rediss"}).items():
        for scheme, named in ((ours, None), (known, DOTTED), (ours, DOTTED)):
            label = f"{scheme} {'dotted' if named else 'alias'}"
            ways[label] = Way(f"{scheme}://a:7001/0", named, known)
            ways[f"{label} list"] = Way(LIST.format(scheme), named, known, HOSTS)
            ways[f"{label} sequence"] = Way(LIST.format(scheme).split(";"), named, known, HOSTS)
    ways["sentinel by class name"] = Way(LIST.format("sentinel"), DOTTED_SENTINEL, "sentinel", HOSTS)
    ways["by class name with dots"] = Way("redis://a:7001", "kombu_delayq.transport.Transport", "redis")
    ways["sentinel with dots"] = Way("sentinel://a:7001", "kombu_delayq.transport.SentinelTransport", "sentinel")
    ways["list of both schemes"] = Way("redis://a:7001;delayq://b:7002;redis://c:7003", DOTTED, "redis", HOSTS)
    ways["list with Valkey"] = Way("valkey://a:7001;delayq://b:7002;redis://c:7003", DOTTED, "redis", HOSTS)
    ways["upper case"] = Way("REDIS://a:7001;Redis://b:7002;REDIS://c:7003", DOTTED, "redis", HOSTS)
    ways["upper case TLS"] = Way("REDISS://a:7001;Rediss://b:7002;REDISS://c:7003", DOTTED, "rediss", HOSTS)
    ways["blanks"] = Way("delayq://a:7001; delayq://b:7002 ;delayq://c:7003;", None, "redis", HOSTS)
    ways["blanks in Sentinels"] = Way("sentinel://a:7001; sentinel://b:7002;", DOTTED, "sentinel", HOSTS[:2])
    ways["TLS by a parameter"] = Way("delayq://a:7001?ssl_ca_certs=/ca", None, "rediss")
    ways["TLS by a parameter, dotted"] = Way("rediss://a:7001?ssl_cert_reqs=required", DOTTED, "rediss")
    ways["socket"] = Way("delayq+socket:///run/redis.sock", None, "socket", ("socket:///run/redis.sock",))
    ways["socket dotted"] = Way("socket:///run/redis.sock", DOTTED, "socket", ("socket:///run/redis.sock",))
    return ways


WAYS = _ways()
LISTS = {label: way for label, way in WAYS.items() if len(way.hosts) > 1}
COPIES: dict[str, Callable[[Connection], Connection]] = {
    "clone": Connection.clone,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda connection: pickle.loads(pickle.dumps(connection)),
    "pool": lambda connection: connection.Pool(2).new(),
    "copy of a copy": lambda connection: connection.clone().clone(),
}


def _connect(way: Way, **options: Any) -> Connection:
    return Connection(way.url, transport=way.transport, **options)


def _assert_lands(connection: Connection, kind: str, host: str) -> None:
    """Asserts that this is our transport for that kind of broker, at that host, with TLS if that says so."""
    made = connection.transport
    assert isinstance(made, transport.Transport | transport.SentinelTransport)
    assert made.Channel is (transport.SentinelChannel if kind == "sentinel" else transport.Channel)
    assert connection.as_uri().startswith("redis+socket:///" if kind == "socket" else f"{kind}://")
    assert (connection.hostname if kind == "socket" else connection.host) == host
    assert bool(connection.ssl) == (kind == "rediss")
    if kind == "rediss":
        assert isinstance(connection.ssl, dict)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_url_leads_to_our_transport(way: Way) -> None:
    """A broker URL leads to our transport, its host and TLS, at first and when the connection is opened again."""
    connection = _connect(way)
    _assert_lands(connection, way.kind, way.hosts[0])
    connection.close()
    _assert_lands(connection, way.kind, way.hosts[0])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_copy_leads_where_the_original_does(way: Way) -> None:
    """A copy, made before or after kombu has asked for the transport, leads where the original does, on and on."""
    for make, settled in product(COPIES.values(), (False, True)):
        original = _connect(way)
        if settled:
            _assert_lands(original, way.kind, way.hosts[0])
        copied = make(original)
        _assert_lands(copied, way.kind, way.hosts[0])
        _assert_lands(original, way.kind, way.hosts[0])
        for host in (*way.hosts[1:], *way.hosts) if len(way.hosts) > 1 else ():
            copied.maybe_switch_next()
            _assert_lands(copied, way.kind, host)


class _Interrupted(Connection):
    """A connection at which other threads go on whenever one reads or sets a field."""

    def __getattribute__(self, name: str) -> Any:
        sleep(0)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        sleep(0)
        super().__setattr__(name, value)


def _copied_at_once(shared: Connection, together: Barrier) -> dict[str, Any]:
    together.wait(10)
    return _settled(shared.clone())


def _settled(connection: Connection) -> dict[str, Any]:
    """Returns what a connection has once it is in use; before that, kombu may tell another name of its transport."""
    assert connection.transport
    return dict(connection.info())


SHARED = WAYS | {
    "credentials": Way("redis://me:pass@a:7001/3", DOTTED, "redis"),
    "cluster": Way("delayq+cluster://me:pass@a:7001,b:7002/0", None, "cluster"),
    "cluster dotted": Way("redis://:pass@a:7001,b:7002", urls.CLUSTER, "cluster"),
    "cluster of one node, TLS": Way("delayqs+cluster://:pass@a:7001/0", None, "cluster"),
}


@pytest.mark.parametrize("way", SHARED.values(), ids=SHARED)
def test_threads_may_share_a_connection_that_is_new(way: Way) -> None:
    """Threads that copy a connection at its first use get all that its URL says, and leave it as one thread would."""
    alone = _connect(way)
    copied, left = _settled(alone.clone()), _settled(alone)
    together = Barrier(6)
    with ThreadPoolExecutor(6) as threads:
        for _ in range(3):
            shared = _Interrupted(way.url, transport=way.transport)
            found = [threads.submit(_copied_at_once, shared, together) for _ in range(6)]
            assert [each.result(10) for each in found] == [copied] * 6
            assert _settled(shared) == left


@pytest.mark.parametrize("way", LISTS.values(), ids=LISTS)
def test_switching_through_a_list_stays_on_our_transport(way: Way) -> None:
    """A switch by kombu to the next of a list stays on our transport and keeps TLS, through the list three times."""
    connection = _connect(way)
    _assert_lands(connection, way.kind, way.hosts[0])
    given = connection.ssl
    for host in (*way.hosts[1:], *way.hosts, *way.hosts):
        connection.maybe_switch_next()
        _assert_lands(connection, way.kind, host)
        assert connection.ssl == given
    assert connection.completes_cycle(len(way.hosts) - 1)


@pytest.mark.parametrize("way", [each for each in LISTS.values() if each.kind == "sentinel"])
def test_sentinel_knows_all_nodes(way: Way) -> None:
    """All Sentinels of a list stay known, under the scheme by which kombu's channel finds them."""
    connection = _connect(way)
    for _ in range(4):
        assert isinstance(connection.transport, stock.Transport)
        assert connection.alt == [f"sentinel://{host}" for host in way.hosts]
        connection.maybe_switch_next()


def test_shuffled_list_stays_on_our_transport() -> None:
    """With the failover strategy ``shuffle`` every host is reached, on our transport."""
    connection = Connection(LIST.format("redis"), transport=DOTTED, failover_strategy="shuffle")
    seen = set()
    for _ in range(60):
        _assert_lands(connection, "redis", connection.transport and connection.host)
        seen.add(connection.host)
        connection.maybe_switch_next()
    assert seen == set(HOSTS)


@pytest.mark.parametrize(
    ("url", "named", "said"),
    [
        ("delayq+redis://:secret@a", None, "write delayq://"),
        ("delayq+rediss://:secret@a", None, "write delayqs://"),
        ("delayqs+redis://:secret@a", None, "write delayqs://"),
        ("delayqs+sentinel://:secret@a", None, "write delayq+sentinel://… and the setting broker_use_ssl"),
        ("delayq+amqp://:secret@a", None, "kombu-delayq takes delayq, delayqs"),
        ("delayq+delayq://:secret@a", None, "write delayq://"),
        ("delayq+redis+socket:///secret", None, "write delayq+socket://"),
        ("amqp://:secret@a", DOTTED, "broker URL amqp://"),
        (
            "memory://",
            DOTTED,
            "write no broker_transport in the settings of tests; or leave both, and use the pytest fixture",
        ),
        ("redis://:secret@a", DOTTED_SENTINEL, "write delayq+sentinel://"),
        ("delayq://a;amqp://:secret@b", None, "found amqp://…, delayq://…"),
        ("redis://a;rediss://:secret@b", DOTTED, "found redis://…, rediss://…"),
        ("delayqs://a;delayq://:secret@b", None, "found delayq://…, delayqs://…"),
        ("delayq+sentinel://:secret@a;b:26379", None, "found one without a scheme, delayq+sentinel://…"),
        ("delayq+sentinel://a;delayq://:secret@b", None, "found delayq://…, delayq+sentinel://…"),
        ("delayq+socket:///a;delayq+socket:///secret", None, "found delayq+socket://"),
        (";redis://:secret@a", DOTTED, "neither a host nor a socket"),
        ("delayq://:secret@a?foo=secret&bar=1", None, "that kombu does not know: bar, foo"),
        ("delayq+socket:///run/redis.sock?foo=secret", None, "that kombu does not know: foo"),
        ("delayq://:secret@a?ssl=secret", None, "write delayqs://"),
        ("delayq://a/0?password=secret", None, "has password behind a question mark; write it as in delayq://USER:"),
        ("redis://a;redis://b?virtual_host=secret&userid=secret", DOTTED, "has userid, virtual_host behind"),
        ("delayq+cluster://a,b/0?port=secret", None, "has port behind"),
        ("redis://:secret#1@localhost:6379/0", DOTTED, "such as %23 for #"),
        ("redis://:1/secret@localhost:6379/0", DOTTED, "such as %23 for #"),
        ("redis://:1?secret@localhost:6379/0", DOTTED, "such as %23 for #"),
        ("redis://us/er:secret@localhost:6379/0", DOTTED, "such as %23 for #"),
        ("redis://a;redis://:secret/1@localhost:6379/0", DOTTED, "such as %23 for #"),
        ("delayq+sentinel://:p@s/secret@h:1", None, "such as %23 for #"),
        ("localhost:7102", DOTTED, "is missing: write redis://localhost:7102"),
        ("redis:6379/3?password=secret", DOTTED, "is missing: write redis://redis:6379/3"),
        (":se/cr@t:secret@localhost", DOTTED, "is missing: write redis://**@localhost"),
        ("localhost/3", DOTTED, "is missing: write redis://localhost/3"),
        ("//a:7001/0", DOTTED, "is missing: write redis://a:7001/0"),
        ("[::1]:6379", DOTTED, "is missing: write redis://[::1]:6379"),
        ("rediss:/a:7001", DOTTED, "is missing: write rediss://a:7001"),
        ("/run/redis.sock", DOTTED, "is missing: write delayq+socket:///run/redis.sock"),
        ("redis://a;b:26379", DOTTED, "is missing: write redis://b:26379"),
    ],
)
def test_url_that_would_lead_elsewhere_is_refused(url: str, named: str | None, said: str) -> None:
    """A URL that kombu would take elsewhere is refused each time, with what to write, and without its password."""
    connection = Connection(url, transport=named)
    for ask in (lambda: connection.transport, connection.clone, connection.as_uri, lambda: repr(connection)):
        with pytest.raises(InvalidBrokerURL) as error:
            ask()
        assert said in str(error.value)
        assert "secret" not in str(error.value)


def test_switch_to_a_socket_is_refused() -> None:
    """A switch to a socket's URL, which kombu would lead to localhost, is refused."""
    connection = Connection("delayq://a")
    connection.switch("delayq+socket:///run/redis.sock")
    with pytest.raises(InvalidBrokerURL, match="neither a host nor a socket"):
        connection.clone()


def test_kombu_overlooks_the_dotted_path_behind_a_plus() -> None:
    """``redis+socket://`` makes kombu drop the transport that it was given, before ours is asked.

    That is why the worker's start is checked, and why the documented form is ``delayq+socket://``.
    """
    connection = Connection("redis+socket:///run/redis.sock", transport=DOTTED)
    assert type(connection.transport) is stock.Transport


@pytest.mark.parametrize("scheme", ["delayq", "delayqs", "valkeys"])
def test_tls_setting_true_checks_the_server(scheme: str) -> None:
    """``broker_use_ssl = True``, which stock kombu drops, gives TLS with the certificate and its name checked."""
    connection = Connection(f"{scheme}://a;{scheme}://b", ssl=True)
    for host in "abab":
        _assert_lands(connection, "rediss", f"{host}:None")
        assert connection.ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
        connection.maybe_switch_next()


@pytest.mark.parametrize("scheme", ["delayq", "delayqs", "valkey", "valkeys", "redis", "rediss"])
def test_tls_settings_are_taken_as_they_are(scheme: str) -> None:
    """A dict in ``broker_use_ssl`` is handed to the Redis client for every host; ``delayqs`` adds its checks only."""
    given = {"ssl_cert_reqs": ssl.CERT_OPTIONAL, "ssl_ca_certs": "/ca"}
    connection = Connection(f"{scheme}://a;{scheme}://b", transport=DOTTED, ssl=given)
    for _ in range(4):
        assert connection.transport
        expected = {**given, "ssl_check_hostname": True} if scheme in ("delayqs", "valkeys") else given
        assert connection.ssl == connection.clone().ssl == expected
        connection.maybe_switch_next()


@pytest.mark.parametrize("reqs", [ssl.CERT_NONE, "none"])
def test_tls_without_checks_on_demand(reqs: Any) -> None:
    """``delayqs://`` leaves out its checks where ``ssl_cert_reqs`` says so."""
    connection = Connection("delayqs://a;delayqs://b", ssl={"ssl_cert_reqs": reqs})
    for _ in range(3):
        assert connection.transport
        assert connection.ssl == {"ssl_cert_reqs": reqs, "ssl_check_hostname": False}
        connection.maybe_switch_next()


def test_tls_settings_reach_sentinel() -> None:
    """With Sentinel, ``broker_use_ssl`` is kept, and the connection stays one of Sentinel."""
    connection = Connection(LIST.format("delayq+sentinel"), ssl=True)
    for _ in range(4):
        assert connection.as_uri().startswith("sentinel://")
        assert connection.ssl["ssl_cert_reqs"] == ssl.CERT_REQUIRED
        connection.maybe_switch_next()


def test_tls_parameters_of_a_url() -> None:
    """The ``ssl_`` parameters of a URL reach the Redis client."""
    connection = Connection("delayqs://a?ssl_ca_certs=/ca&ssl_cert_reqs=CERT_OPTIONAL&ssl_check_hostname=false")
    assert connection.transport
    assert connection.ssl == {"ssl_ca_certs": "/ca", "ssl_cert_reqs": ssl.CERT_OPTIONAL, "ssl_check_hostname": False}


def test_unchecked_tls_is_said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rediss://`` does not check the certificate, as with stock kombu, and says so once; ``delayqs://`` checks it."""
    monkeypatch.setattr(urls, "_warned", set())
    for _ in range(2):
        assert Connection("rediss://a", transport=DOTTED).clone().ssl == {"ssl_cert_reqs": ssl.CERT_NONE}
    assert caplog.text.count("does not check the server's certificate") == 1
    assert Connection("delayqs://a").clone().ssl["ssl_cert_reqs"] == ssl.CERT_REQUIRED


@pytest.mark.parametrize("known", ["redis", "rediss", "sentinel"])
def test_parts_of_a_url_are_those_that_stock_kombu_sees(known: str) -> None:
    """Host, port, user, password, database and printed URL are those of stock kombu for the same URL."""
    ours = {"redis": "delayq", "rediss": "delayqs", "sentinel": "delayq+sentinel"}[known]
    for rest in (f"us%2Fer:{ESCAPED}@a.b:7001/3", f":{ESCAPED}@a/3", "a", "", "/2", "[::1]:7001/1", "a//", "a/%2F2"):
        expected = Connection(f"{known}://{rest}")
        for connection in (
            Connection(f"{ours}://{rest}"),
            Connection(f"{known}://{rest}", transport=DOTTED),
            Connection(f"{ours}://{rest}").clone(),
        ):
            assert connection.as_uri(include_password=True) == expected.as_uri(include_password=True)
            for name in ("userid", "password", "virtual_host", "port"):
                assert connection.info()[name] == expected.info()[name]
            assert connection.info()["transport"] == ("redis" if connection.transport_cls == DOTTED else known)


SECRETIVE = {
    **{f"{scheme} {named and 'dotted'}": (f"{scheme}://user:{ESCAPED}@a/1", named) for scheme, named in (
        ("delayq", None), ("delayqs", None), ("delayq+sentinel", None), ("redis", DOTTED), ("rediss", DOTTED),
        ("sentinel", DOTTED), ("sentinel", DOTTED_SENTINEL))},
    "list": (f"delayq://:{ESCAPED}@a;delayq://:{ESCAPED}@b", None),
    "socket": (f"delayq+socket://:{ESCAPED}@/run/redis.sock?virtual_host=1", None),
    "socket dotted": (f"socket://user:{ESCAPED}@/run/redis.sock", DOTTED),
}  # fmt: skip


@pytest.mark.parametrize(("url", "named"), SECRETIVE.values(), ids=SECRETIVE)
def test_password_is_printed_only_on_demand(url: str, named: str | None) -> None:
    """No way to print a connection shows its password, before or after the transport exists, unless asked to."""
    connection = Connection(url, transport=named)
    report = "" if url.startswith("socket") else Celery(set_as_current=False, broker=url).bugreport()
    for each in (connection, connection, connection.clone(), connection.clone().clone()):
        for text in (each.as_uri(), repr(each), str(each), each.as_uri(mask=""), report):
            assert SECRET not in text
            assert ESCAPED not in text
            assert "pa%2Fss" not in text
        assert ESCAPED in each.as_uri(include_password=True)
        each.maybe_switch_next()


def test_password_that_is_made_on_demand_is_printed_only_on_demand() -> None:
    """A password that is a callable is asked for only with ``include_password``."""
    connection = Connection("a", transport=DOTTED, password=lambda: "made")
    assert connection.as_uri() == "redis://:**@a:6379//"
    assert connection.as_uri(include_password=True) == "redis://:made@a:6379//"
