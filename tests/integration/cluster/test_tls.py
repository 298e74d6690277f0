"""A cluster that speaks TLS: what of certificates is checked, and what the URL says about that."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from tests.support.looped import publish, queue_of
from tests.support.servers.certificates import Authority
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.redis_version import need_tls

QUEUES = [f"orders{number}" for number in range(6)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificates are."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def ca(directory: Path) -> Authority:
    """The authority of the nodes, where these speak TLS."""
    need_tls()
    return Authority(directory, "ca")


@pytest.fixture(scope="module")
def tls(ca: Authority) -> Iterator[PrivateCluster]:
    """Two nodes with a password, whose certificates are for 127.0.0.1, by which the cluster names them."""
    certificate = (ca.certificate, *ca.issue("127.0.0.1"))
    with PrivateCluster(primaries=2, replicas=0, password="secret", certificate=certificate) as cluster:
        yield cluster


def url_of(cluster: PrivateCluster, host: str = "127.0.0.1", **query: object) -> str:
    """Returns the URL of a cluster with the given parameters of TLS alone."""
    given = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    return cluster.url.partition("?")[0].replace("127.0.0.1", host) + f"?{given}"


def works(url: str) -> None:
    """Publishes and consumes messages, also delayed ones, in queues of all nodes."""
    app = Celery(broker=url, set_as_current=False)
    for queue in QUEUES:
        app.send_task("later", queue=queue, countdown=0.2)
    app.close()
    found = []
    with Connection(url) as connection, connection.clone() as consuming:
        for queue in QUEUES:
            publish(connection, queue, "now")
        consumer = consuming.Consumer(
            [queue_of(queue) for queue in QUEUES], on_message=lambda message: (found.append(message), message.ack())
        )
        with consumer:
            while len(found) < 2 * len(QUEUES):
                consuming.drain_events(timeout=30)


def test_messages_go_over_tls(tls: PrivateCluster, ca: Authority) -> None:
    """With the authority in the URL, all nodes are reached and checked."""
    works(url_of(tls, ssl_ca_certs=ca.certificate))


def test_the_name_may_be_left_out(tls: PrivateCluster, ca: Authority) -> None:
    """A name that is not in the certificate is accepted if the URL says so, and the authority is checked as well."""
    works(url_of(tls, "localhost", ssl_ca_certs=ca.certificate, ssl_check_hostname="false"))


@pytest.mark.parametrize(
    ("host", "authority", "check", "reason"),
    [
        ("127.0.0.1", "other", "true", "certificate verify failed"),
        ("127.0.0.1", None, "true", "certificate verify failed"),
        ("localhost", "ca", "true", "Hostname mismatch"),
        ("localhost", "other", "false", "certificate verify failed"),
    ],
    ids=["another CA", "the machine's CAs", "another name", "another CA without the name"],
)
def test_a_node_that_cannot_prove_itself_is_refused(
    tls: PrivateCluster, directory: Path, host: str, authority: str | None, check: str, reason: str
) -> None:
    """Nothing is sent to a node whose certificate does not hold, and the error says why."""
    query = {"ssl_ca_certs": (directory / f"{authority}.crt")} if authority else {}
    if authority == "other":
        Authority(directory, "other")
    url = url_of(tls, host, ssl_check_hostname=check, **query)
    with Connection(url) as connection, pytest.raises(OperationalError, match=f"(?i){reason}"):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_each_node_has_to_prove_itself(ca: Authority) -> None:
    """If the cluster names its nodes by addresses that certificates lack, the error says so, and an option helps."""
    certificate = (ca.certificate, *ca.issue("localhost"))
    with PrivateCluster(primaries=2, replicas=0, certificate=certificate) as cluster:
        with (
            Connection(url_of(cluster, "localhost", ssl_ca_certs=ca.certificate)) as connection,
            pytest.raises(OperationalError, match=r"not valid for '127\.0\.0\.1'"),
        ):
            connection.ensure_connection(max_retries=1, interval_start=0)
        works(url_of(cluster, "localhost", ssl_ca_certs=ca.certificate, ssl_check_hostname="false"))


def test_a_plain_connection_to_a_port_with_tls_fails(tls: PrivateCluster) -> None:
    """``delayq+cluster://`` does not reach nodes that speak TLS, and does not wait for long."""
    with (
        Connection(tls.url.partition("?")[0].replace("delayqs", "delayq")) as connection,
        pytest.raises(OperationalError),
    ):
        connection.ensure_connection(max_retries=1, interval_start=0)
