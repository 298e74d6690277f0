"""Counts the commands that single clients of a Redis send."""

import socket
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from threading import Thread
from typing import Self

import redis

from celery_ext.demo.private_redis import PrivateRedis


class Monitor:
    """Hears what Redis's MONITOR says of all clients.

    Args:
        server: The Redis.
        left_out: Commands that do not count, by their first words.
    """

    def __init__(self, server: PrivateRedis, left_out: Collection[str] = ()) -> None:
        self._left_out = tuple(f"{words} " for words in left_out)
        self._client = server.client()
        self._monitor = self._client.monitor()
        self._counts: Counter[str] = Counter()
        self._thread = Thread(target=self._read, daemon=True)

    def commands(self, name: str) -> Counter[str]:
        """Counts the commands so far, by the addresses of the connections that have this client name now."""
        assert self._thread.is_alive(), "Redis monitors no longer"
        addresses = [client["addr"] for client in self._client.client_list() if client["name"] == name]
        return Counter({address: self._counts[address] for address in addresses})

    def __enter__(self) -> Self:
        self._monitor.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._monitor.connection._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._monitor.__exit__()
        self._client.close()

    def _read(self) -> None:
        with suppress(redis.ConnectionError, OSError):  # once the socket is shut down
            while True:
                heard = self._monitor.next_command()
                if not f"{heard['command']} ".startswith(self._left_out):
                    self._counts[f"{heard['client_address']}:{heard['client_port']}"] += 1
