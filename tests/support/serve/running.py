"""A real server of ``delayq serve``, in a process of its own or in a thread, and requests to it."""

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from celery_ext.serve.access.tokens import Token, hash_of, write_tokens
from celery_ext.serve.server import Server, listen, url_of
from tests.support.commands.shell import BIN
from tests.support.conditions import until


class Answer(NamedTuple):
    """What a server answered.

    Attributes:
        status: HTTP status.
        headers: By name in small letters; of several with one name, the last.
        text: The body.
    """

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.text)


def ask(
    url: str,
    path: str = "",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    token: str = "",
) -> Answer:
    """Sends a request, and returns the answer.

    Args:
        url: URL of the server.
        path: Path below it, with a query.
        method: HTTP method.
        headers: Further headers.
        body: Bytes, an iterator of them that are sent in chunks, or what becomes JSON.
        token: Bearer token.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    given = dict(headers or {})
    if token:
        given["Authorization"] = f"Bearer {token}"
    if body is not None and not isinstance(body, (bytes, Iterator)):
        body, given = json.dumps(body).encode(), {"Content-Type": "application/json", **given}
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered, and read no more of the body
            connection.request(method, parts.path.rstrip("/") + path, body, given)
        got = connection.getresponse()
        answer = got.read().decode()
        return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, answer)
    finally:
        connection.close()


def raw(url: str, *pieces: bytes, end: bool = True) -> bytes:
    """Sends bytes as they are. Returns what comes until the server closes the connection."""
    with connected(url) as client:
        for piece in pieces:
            client.sendall(piece)
        if end:
            client.shutdown(socket.SHUT_WR)
        return read_to_end(client)


def connected(url: str) -> socket.socket:
    """Opens a connection to a server."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def read_to_end(client: socket.socket) -> bytes:
    """Returns what comes until the server closes the connection."""
    found = b""
    try:
        while data := client.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return found


def tokens_file(path: Path, *tokens: Token) -> Path:
    """Writes a file of tokens."""
    write_tokens(path, tokens)
    return path


def token_of(
    secret: str, name: str = "tester", *, actions: Any = (), queues: Any = ("*",), tasks: Any = ("*",)
) -> Token:
    """Makes the entry of a token."""
    return Token(name, hash_of(secret), frozenset(actions), tuple(queues), tuple(tasks))


class Served:
    """A process of ``delayq serve``.

    Args:
        broker: URL of the broker.
        *args: Options of ``serve``; a free port comes from us.
        env: Further variables of the environment.
        log: Gets what the process writes.
    """

    def __init__(self, broker: str, *args: str, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [BIN / "delayq", "serve", "--port", "0", *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "DELAYQ_BROKER_URL": broker, **(env or {})},
            )

    @property
    def text(self) -> str:
        """What the process has written so far."""
        return self.log.read_text(errors="replace")

    @property
    def url(self) -> str:
        """URL of the page; waits for it."""
        until(lambda: "http://" in self.text or self.process.poll() is not None, 90, "the server starts")
        assert self.process.poll() is None, self.text
        return self.text.partition("serve: ")[2].split()[0]

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def end(self, timeout_s: float = 60.0) -> int:
        """Sends SIGTERM, if the process runs. Returns its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)


@contextmanager
def serving(broker: str, *args: str, log: Path, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Runs ``delayq serve`` with options, and ends it."""
    served = Served(broker, *args, log=log, env=env)
    try:
        yield served
    finally:
        try:
            served.end()
        finally:
            served.kill()


@contextmanager
def in_thread(application: ASGIApp) -> Iterator[str]:
    """Serves an application from a thread of this process, and yields its URL."""
    listening, ready = listen("127.0.0.1", 0), Event()
    server = Server(application, on_ready=ready.set)
    thread = Thread(target=server.serve_on, args=(listening,), daemon=True)
    url = url_of(listening)
    thread.start()
    assert ready.wait(60)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
        close(application)


def close(application: ASGIApp) -> None:
    """Ends the threads of a server of ours, such as those that write the states of bulk actions."""
    if serve := getattr(getattr(application, "state", None), "serve", None):
        serve.broker.close()
