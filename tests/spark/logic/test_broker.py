"""How jobs reach the broker, and that no password is in anything that Spark keeps or shows."""

import pickle
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import BrokerUnavailable, InvalidSparkOption
from celery_ext.spark.options import ReadOptions, WriteOptions

SECRET = "tops3cret"
#: URLs with a password in all places where one may be, or may be taken for something else.
WITH_PASSWORD = [
    f"redis://:{SECRET}@127.0.0.1:1/0",
    f"redis://user:{SECRET}@127.0.0.1:1/0",
    f"redis://user:x%40{SECRET}@127.0.0.1:1/0",
    f"redis://user%3A{SECRET}@127.0.0.1:1/0",
    f"rediss://:{SECRET}@127.0.0.1:1/0?ssl_cert_reqs=none",
    f"delayq+sentinel://:{SECRET}@127.0.0.1:1;delayq+sentinel://127.0.0.1:2",
    f"redis://127.0.0.1:1/0;redis://:{SECRET}@127.0.0.1:2/0",
    f"redis+socket://:{SECRET}@/tmp/none.sock",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"redis://127.0.0.1:1/0?pass%77ord={SECRET}",
    f"redis://127.0.0.1:1/0?a=b&PASSWORD={SECRET}",
    f"redis://127.0.0.1:1/0;redis://127.0.0.1:2/0?password={SECRET}",
    f"rediss://127.0.0.1:1/0?ssl_keyfile_password={SECRET}",
]
#: URLs whose password has a character that ends an address, so that it is taken for a host, a port or a path.
UNREADABLE = [
    *(f"redis://user:{first}{mark}{SECRET}@127.0.0.1:1/0" for mark in "/?#;" for first in ("", "12", "x")),
    *(f"redis://user:{SECRET}{mark}{last}@127.0.0.1:1/0" for mark in "/?#;" for last in ("", "12", "x")),
    f"redis://user:{SECRET}[@127.0.0.1:1/0",
    f"user:{SECRET}@127.0.0.1:1/0",
    f"127.0.0.1:{SECRET}",
    f"redis://127.0.0.1:{SECRET}/0",
    f"redis://127.0.0.1:1;{SECRET}@127.0.0.1:1",
    f"rediss://:{SECRET}@127.0.0.1:1/0?ssl_cert_reqs={SECRET}",
    f"redis://:{SECRET}@",
]
#: URLs that a job may have in its plan.
WITHOUT_PASSWORD = [
    "redis://127.0.0.1:6379/0",
    "redis://user@127.0.0.1/1",
    "delayqs://host.example:6379/0?ssl_cert_reqs=required",
    "redis+socket:///tmp/redis.sock",
    "delayq+sentinel://a:26379;delayq+sentinel://b:26379",
    "redis://[::1]:6379/0",
    "redis://host?credential_provider=package.Class",
]


def shown_by(error: BaseException) -> str:
    """Returns all that is printed of an error."""
    return "".join(traceback.format_exception(error)) + repr(error.args)


@pytest.mark.parametrize("url", WITH_PASSWORD + UNREADABLE)
def test_a_url_with_a_password_is_refused_as_an_option(url: str) -> None:
    """Spark would keep the option in plans and pickles, so it is refused, without being shown."""
    options = WriteOptions.parse({"broker_url": url})
    with pytest.raises(InvalidSparkOption, match="broker_url_env") as caught:
        Broker.of(options.broker_url, None, {})
    assert SECRET not in shown_by(caught.value)


@pytest.mark.parametrize("given", [[WITH_PASSWORD[0]], ("redis://127.0.0.1:1/0", WITH_PASSWORD[0])])
def test_a_list_of_urls_of_an_app_is_searched_for_passwords(given: Any) -> None:
    """The broker URLs of an app may be a sequence, and none of them may have a password."""
    with pytest.raises(InvalidSparkOption, match="broker_url_env") as caught:
        Broker.of(given, None, {})
    assert SECRET not in shown_by(caught.value)


def test_a_list_of_urls_of_an_app_is_used_as_one() -> None:
    """Several URLs are kept as kombu writes them."""
    assert Broker.of(["redis://a:1/0", "redis://b:2/0"], None, {}).url == "redis://a:1/0;redis://b:2/0"


@pytest.mark.parametrize("url", WITHOUT_PASSWORD)
def test_a_url_without_a_password_is_taken(url: str) -> None:
    """What has no password, however it is written, is taken as it is."""
    assert Broker.of(url, None, {}).url == url


@pytest.mark.parametrize(
    "options",
    [
        {"password": SECRET},
        {"sentinel_kwargs": {"password": SECRET}},
        {"a": [{"Sentinel_Password": SECRET}]},
        {"credential_provider": SimpleNamespace(key=SECRET)},
    ],
)
def test_a_password_in_transport_options_is_refused(options: dict[str, Any]) -> None:
    """Transport options are kept in plans and pickles too, also those of an app."""
    with pytest.raises(InvalidSparkOption, match="broker_url_env") as caught:
        Broker.of("redis://127.0.0.1:1/0", None, options)
    assert SECRET not in shown_by(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://user:{SECRET}@host/db",
        f"postgresql+psycopg://user@host/db?password={SECRET}",
        f"postgresql://user:{SECRET}@/db",
        f"postgresql://user:a/{SECRET}@host/db",
        f"postgresql://us/er:{SECRET}@host/db",
    ],
)
def test_a_password_of_a_journal_is_refused(url: str) -> None:
    """The URL of a journal with a password is given by the name of an environment variable."""
    with pytest.raises(InvalidSparkOption, match="journal_url_env") as caught:
        Broker.of("redis://127.0.0.1:1/0", None, {"journal_url": url})
    assert SECRET not in shown_by(caught.value)
    broker = Broker.of("redis://127.0.0.1:1/0", None, {"journal_url": url}, env_options={"journal_url": "JOURNAL"})
    assert SECRET.encode() not in pickle.dumps(broker)
    assert broker.keeps_elsewhere


@pytest.mark.parametrize("url", ["sqlite:////var/lib/app/journal.db", "postgresql+psycopg://user@host:5432/db"])
def test_a_url_of_a_journal_without_a_password_is_taken(url: str) -> None:
    """What has no password is taken as it is."""
    broker = Broker.of("redis://127.0.0.1:1/0", None, {"journal_url": url})
    assert broker.transport_options == {"journal_url": url}
    assert broker.keeps_elsewhere


def test_a_password_of_a_key_for_tls_is_refused() -> None:
    """The setting broker_use_ssl of an app may hold the password of a private key."""
    with pytest.raises(InvalidSparkOption) as caught:
        Broker.of("rediss://127.0.0.1:1/0", None, {}, {"ssl_password": SECRET})
    assert SECRET not in shown_by(caught.value)


def test_names_of_options_may_be_numbers() -> None:
    """Options of sockets are named by numbers."""
    options = {"socket_keepalive_options": {4: 60}}
    assert Broker.of("redis://127.0.0.1:1/0", None, options).transport_options == options


@pytest.mark.parametrize("url", [each for each in WITH_PASSWORD if "@" in each])
def test_an_unreachable_broker_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """The error says which broker does not answer, and not what the password is."""
    monkeypatch.setenv("BROKER", url)
    broker = Broker.of(None, "BROKER", {"socket_connect_timeout": 1})
    with pytest.raises((BrokerUnavailable, InvalidSparkOption)) as caught:
        broker.connect()
    assert SECRET not in shown_by(caught.value)
    assert SECRET.encode() not in pickle.dumps(broker)


@pytest.mark.parametrize("url", UNREADABLE + [each for each in WITH_PASSWORD if "@" not in each])
def test_a_url_that_cannot_be_read_is_not_shown(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Where the password is in such a URL nobody knows, so nothing of it is shown."""
    monkeypatch.setenv("BROKER", url)
    with pytest.raises(InvalidSparkOption) as caught:
        Broker.of(None, "BROKER", {}).connect()
    assert SECRET not in shown_by(caught.value)


@pytest.mark.parametrize("kind", [WriteOptions, ReadOptions])
def test_a_url_in_place_of_the_name_of_a_variable_is_not_shown(kind: Any) -> None:
    """Whoever writes the URL itself into broker_url_env is told so, without the URL."""
    with pytest.raises(InvalidSparkOption, match="broker_url_env is not the name of an environment variable") as caught:
        kind.parse({"broker_url_env": WITH_PASSWORD[0]})
    assert SECRET not in shown_by(caught.value)


def test_a_wrong_type_of_transport_options_is_not_shown() -> None:
    """Transport options that are no JSON object may have a password in them all the same."""
    with pytest.raises(InvalidSparkOption, match="broker_transport_options is not a JSON object") as caught:
        WriteOptions.parse({"broker_transport_options": f'{{"password": "{SECRET}"'})
    assert SECRET not in shown_by(caught.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, and says where it has to be set."""
    monkeypatch.delenv("NO_BROKER", raising=False)
    with pytest.raises(InvalidSparkOption, match=r"NO_BROKER.*spark\.executorEnv"):
        Broker.of(None, "NO_BROKER", {}).connect()


@pytest.mark.parametrize(("url", "env"), [(None, None), ("redis://127.0.0.1/0", "BROKER")])
def test_a_broker_is_given_in_one_way(url: str | None, env: str | None) -> None:
    """None or two ways to find the broker are refused, in words that name both options."""
    with pytest.raises(InvalidSparkOption, match="either replica_url or replica_url_env"):
        Broker.of(url, env, {}, option="replica_url")


@pytest.fixture(scope="module")
def locked() -> Iterator[PrivateRedis]:
    with PrivateRedis("--requirepass", f"p@ss/{SECRET}?#;") as server:
        yield server


def test_a_quoted_password_in_the_variable_opens_the_broker(
    monkeypatch: pytest.MonkeyPatch, locked: PrivateRedis
) -> None:
    """A password of any characters works when it is quoted as URLs want it."""
    password = quote(f"p@ss/{SECRET}?#;", safe="")
    monkeypatch.setenv("BROKER", f"redis://:{password}@127.0.0.1:{locked.port}/0")
    store = Broker.of(None, "BROKER", {}).connect()
    assert store.client.ping()
    store.close()


@pytest.mark.parametrize("userinfo", ["", f":{SECRET}@", f"nobody:{SECRET}@"])
def test_a_wrong_password_is_not_shown(monkeypatch: pytest.MonkeyPatch, locked: PrivateRedis, userinfo: str) -> None:
    """What the server refuses is told with its address and reason only."""
    monkeypatch.setenv("BROKER", f"redis://{userinfo}127.0.0.1:{locked.port}/0")
    with pytest.raises(BrokerUnavailable, match=f"redis://127.0.0.1:{locked.port}/0 cannot be used") as caught:
        Broker.of(None, "BROKER", {}).connect()
    assert SECRET not in shown_by(caught.value)


def test_a_database_that_is_no_number_is_told() -> None:
    """What kombu does not take of a URL comes as an error of an option, with the URL."""
    with pytest.raises(InvalidSparkOption, match=r"redis://127\.0\.0\.1:1/abc cannot be used"):
        Broker.of("redis://127.0.0.1:1/abc", None, {}).connect()


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("amqp://guest@localhost//", {}, "broker URL amqp://… cannot be used"),
        ("redis://127.0.0.1:1/0", {"max_delay": "x"}, "max_delay"),
    ],
)
def test_what_the_transport_refuses_is_an_option_of_the_data_source(
    url: str, options: dict[str, Any], message: str
) -> None:
    """Another kind of broker, or a wrong transport option, is an error of an option, without kombu's calls."""
    with pytest.raises(InvalidSparkOption, match=message) as caught:
        Broker.of(url, None, options).connect()
    assert "kombu/connection.py" not in shown_by(caught.value)


def test_the_urls_of_a_cluster_are_read() -> None:
    """Several hosts are no password; a password before them is refused as everywhere."""
    url = "delayq+cluster://one:7000,two:7001/0"
    assert Broker.of(url, None, {}).url == url
    with pytest.raises(InvalidSparkOption, match="has a password"):
        Broker.of("delayqs+cluster://:secret@one:7000,two:7001", None, {})
