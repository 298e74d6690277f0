"""Runs the application with uvicorn, until a signal ends it."""

import errno
import logging
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from threading import current_thread, main_thread
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from celery_ext.serve.settings import ServeSettings
from kombu_delayq.errors import DelayqError

logger = logging.getLogger(__name__)

#: How long requests under way may take when the server ends, in s.
GRACE_S = 1
#: How long a connection stays open for the next request, in s. The page asks every 2 s.
KEEP_ALIVE_S = 15
#: Most connections at once; below the usual limit of 1,024 open files.
CONNECTIONS = 900
#: Connections that the system accepts before the server does.
BACKLOG = 512


class CannotServe(DelayqError):
    """The server cannot start like this, or would not be safe."""


def check_safe(settings: ServeSettings, host: str) -> None:
    """Refuses settings with which anybody could look, or change something.

    Args:
        settings: Those of the server.
        host: Name or address to listen on.

    Raises:
        CannotServe: The text says what is missing.
    """
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", settings.root_path):
        raise CannotServe(f"--root-path {settings.root_path!r} is no path such as /delayq")
    if settings.trust_header and not settings.trusted_proxies:
        raise CannotServe("--trust-header needs --trusted-proxy: else every client could name itself")
    if settings.allow_write and not settings.knows_callers:
        raise CannotServe("--allow-write needs --tokens FILE, or --trust-header NAME with --trusted-proxy ADDRESS")
    if settings.lets_anybody_look and not is_loopback(host):
        raise CannotServe(
            f"on {host} others can reach the server: "
            "give --tokens FILE, or --trust-header NAME with --trusted-proxy ADDRESS"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a name or an address to listen on.

    Raises:
        CannotServe: There is no such name.
    """
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotServe(f"there is no address {host}: {error.strerror}") from error
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def listen(host: str, port: int) -> socket.socket:
    """Takes a port. Connections wait until a server accepts them.

    Args:
        host: Name or address.
        port: 0 for any that is free.

    Raises:
        CannotServe: The port is in use, or is not ours to take.
    """
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        taken = socket.socket(family, kind, protocol)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
            taken.listen(BACKLOG)
        except BaseException:
            taken.close()
            raise
    except OSError as error:
        is_taken = port and error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = "; give another port, or 0 for any that is free" if is_taken else ""
        raise CannotServe(f"cannot listen on port {port} of {host}: {error.strerror}{hint}") from error
    return taken


def url_of(listening: socket.socket, root_path: str = "") -> str:
    """Returns the URL of the server on a socket, for the machine that it runs on."""
    host, port = listening.getsockname()[:2]
    address = ip_address(host)
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{root_path.rstrip('/')}/"


class Server(uvicorn.Server):
    """Serves until SIGTERM or SIGINT comes, or until ``should_exit`` is set.

    It ends quietly: a signal is no failure, and neither is a request that waits for something to come.

    Args:
        application: Answers the requests.
        on_ready: Called when the server accepts requests.
        on_end: Called when it does so no more, before it waits for the requests under way.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        on_ready: Callable[[], object] = lambda: None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._on_ready = on_ready
        self._on_end = on_end

    def serve_on(self, listening: socket.socket) -> None:
        """Serves on a bound socket, and closes it at the end."""
        with listening:
            self.run(sockets=[listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept requests."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the connections: those without a request at once, the others after ``GRACE_S``."""
        # It would log each request that it ends as an error.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._on_end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ends the server when a signal comes, and not the process; in a thread there are no signals."""
        if current_thread() is not main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the server; the second signal does not wait for requests under way."""
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(application: Starlette, listening: socket.socket, on_ready: Callable[[str], object]) -> None:
    """Serves until a signal comes.

    Args:
        application: What ``make_app`` has made.
        listening: As of ``listen``.
        on_ready: Called with the URL when the server accepts requests.
    """
    from celery_ext.serve.api.deliveries import stop_waiting  # brings in much that an exporter does not need

    url = url_of(listening, application.state.serve.settings.root_path)
    Server(application, on_ready=partial(on_ready, url), on_end=partial(stop_waiting, application)).serve_on(listening)
    logger.info("the server on %s ended", url)
