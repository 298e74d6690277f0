"""Counts the commands that single clients of a Redis send."""

import re
import socket
from collections import Counter
from threading import Thread
from types import TracebackType
from typing import Self

from celery_ext.demo.private_redis import PrivateRedis

#: A line of MONITOR about a command of a client; commands inside a script have ``lua`` in place of the address.
_LINE = re.compile(rb'^\+[0-9.]+ \[[0-9]+ ([^ \]]+)\] "([^"]*)"', re.MULTILINE)


class Monitor:
    """Hears what Redis's MONITOR says of all clients.

    Args:
        server: The Redis.
    """

    def __init__(self, server: PrivateRedis) -> None:
        self._client = server.client()
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._counts: Counter[tuple[str, str]] = Counter()  # by address and command
        self._is_closing = False
        self._thread = Thread(target=self._read, daemon=True)

    def commands(self, name: str) -> Counter[str]:
        """Counts the commands so far of the connections that have this client name now, by command."""
        if not self._thread.is_alive():
            raise RuntimeError("Redis monitors no longer")
        addresses = {client["addr"] for client in self._client.client_list() if client["name"] == name}
        sent: Counter[str] = Counter()
        for (address, command), count in list(self._counts.items()):
            if address in addresses:
                sent[command] += count
        return sent

    def __enter__(self) -> Self:
        self._socket.sendall(b"MONITOR\r\n")
        if self._socket.recv(5) != b"+OK\r\n":
            raise RuntimeError("Redis does not monitor")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self._client.close()

    def _read(self) -> None:
        rest = b""
        while piece := self._receive():
            lines, end, rest = (rest + piece).rpartition(b"\n")
            for address, command in _LINE.findall(lines + end):
                self._counts[address.decode(), command.decode().upper()] += 1

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1_000_000)
        except ConnectionResetError:  # Redis had more to say when the socket was shut down
            if self._is_closing:
                return b""
            raise
