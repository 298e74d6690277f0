"""Real servers in processes of their own, and consumers over HTTP with tokens."""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import Token, hash_of, write_tokens

_PROGRAM = """
import json, logging, socket, sys
from pathlib import Path
from celery import Celery
from celery_ext.serve import asgi
from celery_ext.serve.api.deliveries import stop_waiting
from celery_ext.serve.server import Server
logging.basicConfig()
listening, url, tokens, options = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4])
app = Celery("served", broker=url)
app.conf.broker_transport_options = options
server = asgi(app, allow_write=True, tokens=tokens)
Server(server, on_end=lambda: stop_waiting(server)).serve_on(socket.socket(fileno=listening))
"""

#: Names of tokens; the secret of each is ``dq_`` and its name.
TOKENS = {
    "billing": {},
    "other": {},
    "exact": {"queues": ("new",)},
    "narrow": {"queues": ("shop.*",)},
    "named": {"tasks": ("orders.*",)},
    "reader": {"actions": frozenset({Action.READ})},
}


class Served:
    """A server. Several processes may serve one port, one after the other.

    Args:
        url: URL of the broker.
        directory: For the file of tokens.
        options: Transport options.
    """

    def __init__(self, url: str, directory: Path, options: dict[str, Any]) -> None:
        self._tokens = directory / "tokens.json"
        write_tokens(self._tokens, [_token(name, **given) for name, given in TOKENS.items()])
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._arguments = [str(self._listening.fileno()), url, str(self._tokens), json.dumps(options)]
        self._log = tempfile.NamedTemporaryFile("w+", prefix="delayq-serve-", suffix=".log")  # noqa: SIM115
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.start()

    def start(self) -> None:
        """Starts a process. Requests wait until it answers."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *self._arguments],
            pass_fds=[self._listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return Path(self._log.name).read_text(errors="replace")

    def callers(self) -> int:
        """Counts the connections of callers."""
        port = self._listening.getsockname()[1]
        found = psutil.Process(self.process.pid).net_connections("tcp")
        return sum(one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in found)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        """Ends it, whatever state it is in."""
        self.kill()
        self._listening.close()
        self._log.close()


class HttpConsumer:
    """A consumer over HTTP.

    Args:
        served: The server.
        holder: Name of its token.
    """

    def __init__(self, served: Served, holder: str = "billing") -> None:
        headers = {"Authorization": f"Bearer dq_{holder}"}
        self.client = httpx.Client(base_url=served.url, headers=headers, timeout=70)

    def take(self, queue: str = "orders", **how: Any) -> dict[str, Any]:
        """Takes messages; keywords as in the query. Returns the answer."""
        return self.post(f"/v1/queues/{queue}:take", params=how)

    def ack(self, taken: dict[str, Any], *tags: str) -> dict[str, Any]:
        """Acknowledges messages of a take, by default all."""
        return self.of(taken, "ack", tags=tags or tags_of(taken))

    def of(self, taken: dict[str, Any], verb: str, **body: Any) -> dict[str, Any]:
        """Does something with the lease of a take. Returns the answer."""
        return self.post(f"/v1/leases/{taken['lease']['id']}:{verb}", json=body)

    def post(self, path: str, **request: Any) -> dict[str, Any]:
        """Sends a request that must succeed. Returns the answer."""
        answer = self.client.post(path, **request)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def refused(self, path: str, **request: Any) -> tuple[int, str]:
        """Sends a request that must not succeed. Returns status and kind of the problem."""
        answer = self.client.post(path, **request)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        problem = answer.json()
        assert problem["status"] == answer.status_code
        return answer.status_code, problem["type"].removeprefix("urn:delayq:problem:")


#: Starts a server; the URL of a broker in place of the test's own, keywords are transport options.
Serve = Callable[..., Served]


def tags_of(taken: dict[str, Any]) -> list[str]:
    """Returns the tags of what was taken."""
    return [message["tag"] for message in taken["messages"]]


def numbers_of(taken: dict[str, Any]) -> list[Any]:
    """Returns the first argument of each task that was taken."""
    return [message["args"][0] for message in taken["messages"]]


@pytest.fixture
def serve(redis_server: Any, client: Any, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers on an empty broker."""
    started: list[Served] = []

    def start(url: str | None = None, **options: Any) -> Served:
        started.append(Served(url or redis_server.url, tmp_path, options))
        return started[-1]

    yield start
    for served in started:
        served.close()


def _token(name: str, **given: Any) -> Token:
    fields = {"actions": frozenset(Action), "queues": ("*",), "tasks": ("*",), **given}
    return Token(name, hash_of(f"dq_{name}"), **fields)
