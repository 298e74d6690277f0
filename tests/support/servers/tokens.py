"""Servers whose only way in is a token that soon ends, as those of a cloud."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import redis

#: The transport option with which processes of the tests find the token.
PROVIDER = "tests.support.apps.tokens:Provider"

#: For how long a token still counts once there is a newer one, in s.
OVERLAP_S = 0.5


class Tokens:
    """Gives the user ``app`` of some servers another token every ``every_s``; ready when entered.

    As of a cloud, the new token counts ``OVERLAP_S`` before the old one ends. Then the server closes all connections.

    Args:
        servers: Clients of the servers, which log in otherwise.
        file: Where the token is written, for ``tests.support.apps.tokens``.
        every_s: How long a token lives, in s.

    Attributes:
        every_s: As given.
        turns: How often the token has changed.
        closed: How many connections the servers have closed for it.
        closing: Held while they close them. A publisher that is cut off before the answer publishes twice.
    """

    def __init__(self, servers: Sequence["redis.Redis"], file: Path, every_s: float = 2.0) -> None:
        self._servers, self._file, self.every_s = servers, file, every_s
        self.turns = self.closed = 0
        self._ended, self.closing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def change(self) -> None:
        """Changes the token."""
        token = uuid4().hex
        self._tell("ACL", "SETUSER", "app", "on", "~*", "&*", "+@all", f">{token}")
        beside = self._file.with_suffix(".new")
        beside.write_text(token, encoding="ascii")
        beside.rename(self._file)
        self._ended.wait(OVERLAP_S)
        self._tell("ACL", "SETUSER", "app", "resetpass", f">{token}")
        with self.closing:
            self.closed += sum(self._tell("CLIENT", "KILL", "USER", "app", "SKIPME", "yes"))
        self.turns += 1

    def _tell(self, *command: str) -> list[Any]:
        return [server.execute_command(*command) for server in self._servers]

    def _run(self) -> None:
        while not self._ended.wait(self.every_s):
            self.change()

    def __enter__(self) -> Self:
        self.change()
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._thread.join()
