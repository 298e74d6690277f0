"""``delayq transfer``: a transfer worker as a process of its own."""

import json
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import BIN, read_until, start_transfer
from tests.support.conditions import stays, until
from tests.support.workers.harness import APPS, MakeProj, Proj

pytestmark = pytest.mark.wide

#: What Redis says of database 99.
NO_SUCH_DATABASE = "DB index is out of range"


def test_the_roll_back_delivers_what_waits_under_a_key_prefix(make_proj: MakeProj) -> None:
    """After the setting is taken out, `celery -A proj delayq transfer` moves what waits; its status tells of both."""
    options = {"broker_transport_options": {"global_keyprefix": "shop."}}
    make_proj(**options).send("record", "before", countdown=2)
    proj = make_proj(broker_transport=None, **options)
    status = proj.celery("delayq", "status")
    assert "uses the stock transport 'redis' itself" in status
    assert re.search(r"^celery +1 +0 ", status, re.MULTILINE)
    proj.worker()
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "proj", "delayq", "transfer"],
        cwd=APPS,
        env={**os.environ, **proj.environment()},
    )
    try:
        proj.await_runs(1, value="before")
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert json.loads(proj.celery("delayq", "status", "--json"))["queues"][0]["delayed"] == 0


@pytest.mark.journey
def test_a_transfer_worker_of_its_own_delivers_and_stops_cleanly(proj: Proj) -> None:
    """`delayq transfer` serves a worker that runs none, and SIGTERM ends it with exit code 0 and its lease."""
    proj.worker(broker_transport_options={"transfer": False})
    process = subprocess.Popen(
        [BIN / "delayq", "--broker", proj.server.url, "transfer", "--loglevel", "DEBUG"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        client = proj.server.client()
        leader = until(lambda: client.get("{delayq}:transfer"))
        assert f":{process.pid}:" in str(leader)
        proj.send("record", countdown=3)
        proj.await_runs(1)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert client.get("{delayq}:transfer") is None
    assert "1 transferred" in log


@pytest.mark.parametrize("known", [True, False])
def test_a_transfer_worker_looks_after_queues_that_it_is_given(proj: Proj, known: bool) -> None:
    """`delayq transfer -Q` delivers what others have put into queues that Celery has never used; it leaves the rest."""
    client = proj.server.client()
    for queue in ("shared", "also shared", "not ours"):
        entry = b"\x08" + bytes(8) + struct.pack("<Q", 4) + queue[:4].encode()
        client.zadd(f"redisson_delay_queue_timeout:{{{queue}}}", {entry: 1})
        client.rpush(f"redisson_delay_queue:{{{queue}}}", entry)
    given = ("--also", "shared,also shared") if known else ()
    process = subprocess.Popen([BIN / "delayq", "--broker", proj.server.url, "transfer", *given])
    try:
        until(lambda: client.get("{delayq}:transfer"))
        if known:
            until(lambda: client.lrange("shared", 0, -1) + client.lrange("also shared", 0, -1) == ["shar", "also"])
            assert client.smembers("{delayq}:queues") == {"shared", "also shared"}
        else:
            stays(lambda: not (client.exists("shared") or client.exists("also shared")), 1.5)
        assert not client.exists("not ours")
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:wrong@127.0.0.1:{port}/0", "invalid username-password pair"),
        ("redis://127.0.0.1:{port}/0", "Authentication required"),
        ("redis://:s3cret@127.0.0.1:{port}/99", NO_SUCH_DATABASE),
        ("redis://poor:pw@127.0.0.1:{port}/0", "no permissions to run the 'smembers' command"),
        ("redis://127.0.0.1:1/0;redis://:wrong@127.0.0.1:{port}/0;redis://:wrong@127.0.0.1:{port}/1", None),
        ("redis://127.0.0.1:{other}/0", "rotocol"),
        ("delayqs://127.0.0.1:{other}/0", "WRONG_VERSION_NUMBER"),
        ("127.0.0.1:{port}", "write redis://127.0.0.1:"),
    ],
)
def test_a_transfer_worker_that_can_never_connect_ends(own_server: PrivateRedis, url: str, said: str | None) -> None:
    """An error that does not end by itself ends it with 1 and says why, but while another broker may come back."""
    client = own_server.client()
    client.acl_setuser("poor", enabled=True, passwords=["+pw"], keys=["*"], commands=["+ping", "+info", "+get"])
    client.config_set("requirepass", "s3cret")
    with _web_server() as other:
        process = start_transfer(url.format(port=own_server.port, other=other))
        if said is None:
            read_until(process, "Redis cannot be used")
            return
        _, log = process.communicate(timeout=100)
    assert process.returncode == 1, log
    assert said in log.splitlines()[-1]
    assert log.splitlines()[-1].startswith("Error: ")
    assert "s3cret" not in log
    assert "wrong@" not in log


@contextmanager
def _web_server() -> Iterator[int]:
    """Runs something that answers, and is no Redis; gives its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Web) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class _Web(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/0", "redis://no.such.host.invalid:{port}/0"])
def test_a_transfer_worker_waits_for_a_redis_that_may_come(own_server: PrivateRedis, url: str) -> None:
    """A refused connection and an unknown host are said at once, and again after a while, and then waited for."""
    own_server.stop()
    process = start_transfer(url.format(port=own_server.port))
    assert process.stderr
    try:
        assert any("Redis cannot be used, delayed messages wait" in line for line in process.stderr)
        assert any("still waiting for Redis, for 1" in line for line in process.stderr)
        own_server.start()
        if "127.0.0.1" in url:
            assert any("Redis can be used again" in line for line in process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_transfer_worker_stops_while_nobody_answers(own_server: PrivateRedis) -> None:
    """SIGTERM ends it at once, although it waits for an answer, and that wait ends by itself too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with start_transfer(url, "-o", "socket_timeout=600") as process:
            silent.accept()
            process.terminate()
            assert process.wait(60) == 0
        read_until(
            start_transfer(url, "-o", "socket_timeout=0.3"), "Redis cannot be used, delayed messages wait: Timeout"
        )
