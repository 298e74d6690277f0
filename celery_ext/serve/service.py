"""A server: what it may do and show, its broker, and its store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from celery import Celery
from kombu.connection import Connection
from redis import ConnectionPool
from starlette.requests import Request

from celery_ext.connection import open_store
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.options import ANSWER_S
from kombu_delayq.redis import pools
from kombu_delayq.store import OperatorStore

if TYPE_CHECKING:
    from celery_ext.serve.access.identity import Caller


@dataclass(frozen=True)
class ServeSettings:
    """Settings of one server.

    Attributes:
        allow_write: Whether callers may change anything. Without it, also a token changes nothing.
        hide_arguments: Whether arguments of tasks are kept from every answer and page.
        dead_letters: Names of further queues of dead letters, beside those that Redis knows.
        root_path: Path below which a proxy serves the page, such as ``/delayq``; the proxy strips it from requests.
        tokens: File with the hashes of tokens; None where there are none.
        trust_header: Name of the header in which a proxy names its user; None where there is no such proxy.
        trusted_proxies: Addresses or networks of the proxies that may set ``trust_header``.
        allowed_hosts: Names by which the server may be called, beside those of this machine's loopback; ``*`` for any.
        identify: Names the caller of a request, for an app that mounts the server; returns None for nobody.
        anonymous: Whether a caller without proof may look; None: only if there are no other callers, so that neither
            tokens, a header of a proxy nor ``identify`` are given.
    """

    allow_write: bool = False
    hide_arguments: bool = False
    dead_letters: tuple[str, ...] = ()
    root_path: str = ""
    tokens: Path | str | None = None
    trust_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    identify: "Callable[[Request], Caller | None] | None" = None
    anonymous: bool | None = None

    @property
    def knows_callers(self) -> bool:
        """Whether callers can prove who they are."""
        return not (self.tokens is None and self.trust_header is None and self.identify is None)

    @property
    def lets_anybody_look(self) -> bool:
        """Whether a caller without proof may look."""
        return self.anonymous if self.anonymous is not None else not self.knows_callers


T = TypeVar("T")

#: Threads that handle requests at once, and so the most connections to Redis.
THREADS = 40


class ServeBroker:
    """The store and the app of a server. All threads share them.

    Args:
        app: Publishes tasks, by its own routes.
        connect: Makes a connection through our transport. It is called again for each try to connect.
    """

    def __init__(self, app: Celery, connect: Callable[[], Connection]) -> None:
        self.app = app
        self._connect = connect
        self._lock = RLock()
        self._parts: dict[Any, Any] = {}
        self._store: OperatorStore | None = None
        self._several = False

    @property
    def store(self) -> OperatorStore:
        """The store; connects if nobody has yet.

        Raises:
            RedisError, OSError: No broker answers. The next caller tries again.
        """
        if (store := self._store) is not None:
            return store
        with self._lock:
            if self._store is None:
                connection = self._connect()
                try:
                    self._several = len(connection.alt) > 1
                    self._store = open_store(connection, pool=_shared_pool)
                finally:
                    connection.close()
            return self._store

    def lost(self) -> None:
        """Lets the next caller look for a broker again if the URL names several. Calls under way keep their store."""
        with self._lock:
            if self._several:
                self._store = None

    def part(self, make: "Callable[[ServeBroker], T]") -> T:
        """Returns what a function makes of this broker: the same object each time, such as a thread that publishes."""
        with self._lock:
            if make not in self._parts:
                self._parts[make] = make(self)
            found: T = self._parts[make]
            return found

    @contextmanager
    def channel(self) -> Iterator[DelayedChannel]:
        """Opens a channel of our transport, such as to read bindings. Redis has a limited time for each answer."""
        limits = dict.fromkeys(("socket_connect_timeout", "socket_timeout"), ANSWER_S)
        with self._connect() as connection:
            connection.transport_options = {**limits, **(connection.transport_options or {})}
            yield connection.default_channel

    def close(self) -> None:
        """Closes the connections to Redis. The next caller connects again."""
        with self._lock:
            parts, self._parts = self._parts, {}
        for part in parts.values():  # a thread among them may need the store to come to its end
            if hasattr(part, "close"):
                part.close()
        with self._lock:
            store, self._store = self._store, None
            if store is not None:
                store.close()


def _shared_pool(channel: DelayedChannel) -> ConnectionPool:
    """Returns a pool for all threads of the server, whose connections wait for answers for a limited time."""
    pool = channel.own_pool()
    pools.make_room(pool, THREADS + 10)
    pools.wait_at_most(pool)
    return pool


@dataclass(frozen=True)
class Serve:
    """A server.

    Attributes:
        broker: Its broker.
        settings: What it may do and show.
    """

    broker: ServeBroker
    settings: ServeSettings

    @property
    def store(self) -> OperatorStore:
        """The store of the broker; connects if nobody has yet."""
        return self.broker.store


def serve_of(request: Request) -> Serve:
    """Returns the server that a request reached."""
    found: Serve = request.app.state.serve
    return found
