"""Small TCP proxies in front of a real Redis, for faults and versions that the server itself cannot show."""

import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from time import sleep
from typing import Self


class Proxy:
    """Forwards each connection on a port of its own to a port of this machine.

    Args:
        target: The port.
        tls: Terminates TLS with this context.
        on_request: Called with each piece that clients send; its result is forwarded.
        on_reply: The same for pieces that the server sends; None in place of a reply cuts the connection.
        silent: Whether a connection that would be cut stays open instead, and carries no reply any more.
    """

    def __init__(
        self,
        target: int,
        *,
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[bytes], bytes] = bytes,
        on_reply: Callable[[bytes], bytes | None] = bytes,
        silent: bool = False,
    ) -> None:
        self._target = target
        self._tls = tls
        self._on_request = on_request
        self._on_reply = on_reply
        self._silent = silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._flows = Event()
        self._flows.set()
        self._forgotten: list[Event] = []
        self.port = int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Broker URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def split(self) -> None:
        """Cuts all connections, and accepts new ones."""
        with self._lock:
            cut, self._open = self._open, set()
        for end in cut:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def restart(self, down_s: float) -> None:
        """Cuts all connections, and refuses new ones for ``down_s`` s."""
        self._close()
        sleep(down_s)  # the fault itself
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listen()

    def freeze(self) -> None:
        """Carries nothing from now on and closes nothing, as a network that drops all packets."""
        self._flows.clear()

    def forget(self) -> None:
        """Carries nothing more for its connections and closes none, as a NAT that has forgotten them; new ones flow."""
        flows, self._flows = self._flows, Event()
        self._flows.set()
        flows.clear()
        self._forgotten.append(flows)

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        for flows in (self._flows, *self._forgotten):
            flows.set()

    def _listen(self) -> None:
        Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.split()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(("127.0.0.1", self._target)) as server:
                with self._lock:
                    self._open |= {client, server}
                flows = self._flows
                back = Thread(target=self._pump, args=(server, client, self._on_reply, flows), daemon=True)
                back.start()
                self._pump(client, server, self._on_request, flows)
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _pump(
        self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes | None], flows: Event
    ) -> None:
        with suppress(OSError):
            while (data := source.recv(65536)) and (changed := change(data)) is not None:
                flows.wait()
                sink.sendall(changed)
            while data and self._silent:
                data = source.recv(65536)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def old_redis(target: int) -> Proxy:
    """Makes a proxy that presents a server as Redis 6.0; the reply keeps its length."""

    def change(reply: bytes) -> bytes:
        return re.sub(rb"(redis_version:)\d\.\d\.", rb"\g<1>6.0.", reply)

    return Proxy(target, on_reply=change)


class CountsRequests(Proxy):
    """Counts the pieces that clients send: one for each round trip, whatever else the server is asked meanwhile."""

    def __init__(self, target: int) -> None:
        self.requests = 0
        super().__init__(target, on_request=self._count)

    def _count(self, request: bytes) -> bytes:
        self.requests += 1
        return request


class LosesReply(Proxy):
    """Cuts the connection in place of the reply to the first request that contains ``mark`` after ``arm``.

    Args:
        target: The port.
        mark: Bytes that the request contains.
        silent: Whether the connection stays open, without this reply and any later one.
    """

    def __init__(self, target: int, mark: bytes, *, silent: bool = False) -> None:
        self._mark = mark
        self._armed = Event()
        self._waiting = Event()
        self.lost = 0
        super().__init__(target, on_request=self._watch, on_reply=self._lose, silent=silent)

    def arm(self) -> None:
        """Loses the next such reply."""
        self._armed.set()

    def _watch(self, request: bytes) -> bytes:
        if self._armed.is_set() and self._mark in request:
            self._armed.clear()
            self._waiting.set()
        return request

    def _lose(self, reply: bytes) -> bytes | None:
        if not self._waiting.is_set():
            return reply
        self._waiting.clear()
        self.lost += 1
        return None
