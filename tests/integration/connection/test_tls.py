"""Delayed delivery over TLS, with the server's certificate checked."""

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.servers.certificates import Authority
from tests.support.servers.proxies import Proxy
from tests.support.servers.redis_version import has_tls
from tests.support.workers.harness import MakeProj


class Tls(NamedTuple):
    """A Redis with a TLS port at 127.0.0.1, the certificate of its authority, and that of another."""

    server: PrivateRedis
    port: int
    ca: Path
    other_ca: Path


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    """Starts it: Redis itself speaks TLS where it was built to, else a proxy does so for it."""
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory, "ca")
    certificate, key = authority.issue("127.0.0.1")
    with Proxy(0) as free:
        port = free.port
    options = ("--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    with ExitStack() as running:
        if has_tls():
            options = (*options, "--tls-ca-cert-file", str(authority.certificate), "--tls-auth-clients", "no")
            server = running.enter_context(PrivateRedis(*options))
        else:
            server = running.enter_context(PrivateRedis())
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, key)
            port = running.enter_context(Proxy(server.port, tls=context)).port
        yield Tls(server, port, authority.certificate, Authority(directory, "other").certificate)


@pytest.mark.journey
def test_countdown_over_tls(tls: Tls, make_proj: MakeProj) -> None:
    """A countdown published over ``rediss://`` is stored and delivered over ``delayqs://``, both checking the CA."""
    settings = {"ssl_ca_certs": str(tls.ca), "ssl_cert_reqs": "required"}
    proj = make_proj(tls.server, broker_url=f"rediss://127.0.0.1:{tls.port}/0", broker_use_ssl=settings)
    due = time.time() + 2
    sent = proj.send("record", countdown=2)
    assert proj.server.client().zcard("delayq:{celery}:due") == 1
    proj.worker(
        broker_url=f"delayqs://127.0.0.1:{tls.port}/0?ssl_ca_certs={quote(str(tls.ca))}",
        broker_transport=None,
        broker_use_ssl=None,
    )
    [run] = proj.await_runs(1)
    assert run["id"] == sent.id
    assert run["at"] >= due
    assert proj.workers[0].stop() == 0
    assert len(proj.runs()) == 1


def test_a_worker_says_each_warning_of_its_connections_once(tls: Tls, make_proj: MakeProj) -> None:
    """A worker warns once of a certificate that it does not check, and of an option that nobody reads."""
    proj = make_proj(
        tls.server, broker_url=f"rediss://127.0.0.1:{tls.port}/0", broker_transport_options={"read_by_nobody": 1}
    )
    worker = proj.worker(gossip=True)
    proj.await_answers()
    proj.send("record", countdown=0.5)
    proj.await_runs(1)
    assert worker.log.count("does not check the server's certificate") == 1
    assert worker.log.count("read_by_nobody") == 1


@pytest.mark.parametrize(
    ("host", "ca", "reason"),
    [
        ("127.0.0.1", "other_ca", "certificate verify failed"),
        ("127.0.0.1", None, "certificate verify failed"),
        ("localhost", "ca", "Hostname mismatch"),
    ],
    ids=["another CA", "the machine's CAs", "another name"],
)
def test_server_that_cannot_prove_itself_is_refused(tls: Tls, host: str, ca: str | None, reason: str) -> None:
    """``delayqs://`` does not talk to a server whose certificate does not hold, and the error says so."""
    query = f"?ssl_ca_certs={quote(str(getattr(tls, ca)))}" if ca else ""
    with (
        Connection(f"delayqs://{host}:{tls.port}/0{query}") as connection,
        pytest.raises(OperationalError, match=f"(?i){reason}"),
    ):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_worker_says_that_the_certificate_does_not_hold(tls: Tls, make_proj: MakeProj) -> None:
    """A worker that cannot check the server's certificate says so in its log, and does not start to consume."""
    url = f"delayqs://:s3cret@127.0.0.1:{tls.port}/0?ssl_ca_certs={quote(str(tls.other_ca))}"
    worker = make_proj(tls.server, broker_url=url, broker_transport=None).worker(wait=False)
    until(lambda: "certificate verify failed" in worker.log, 90, "the reason in the log")
    assert " ready." not in worker.log
    assert "s3cret" not in worker.log
