"""A server: its broker, and its store."""

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from threading import RLock
from time import monotonic
from typing import Any, TypeVar

from celery import Celery
from kombu.connection import Connection
from starlette.requests import Request

from celery_ext.connection import open_store, patient_options
from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.settings import ServeSettings
from celery_ext.waiting import all_queues
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.store import DelayStore

T = TypeVar("T")

#: Threads that handle requests at once, and so the most connections to Redis.
THREADS = 40
#: For how long a queue that exists is not looked for again, in s: an empty one may have left nothing in Redis.
KNOWN_S = 60.0
#: Of how many queues that is remembered: a caller may make and name any number.
MOST_KNOWN = 1000


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
        self._store: DelayStore | None = None
        self._several = False
        self._known_until: dict[str, float] = {}

    @property
    def store(self) -> DelayStore:
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
                    self._store = open_store(connection, pool=lambda channel: channel.patient_pool(THREADS + 10))
                finally:
                    connection.close()
            return self._store

    def has_queue(self, queue: str) -> bool:
        """Whether the app declares a queue, or anybody has used it within ``KNOWN_S``, as far as Redis can say."""
        if queue in self.app.amqp.queues or self._known_until.get(queue, -inf) > monotonic():
            return True
        if found := self.store.queues.exists(queue):
            if len(self._known_until) >= MOST_KNOWN:
                self._known_until.clear()
            self._known_until[queue] = monotonic() + KNOWN_S
        return found

    def lost(self) -> None:
        """Lets the next caller look for a broker again if the URL names several. Calls under way keep their store."""
        with self._lock:
            if self._several:
                self._store = None

    def part(self, make: "Callable[[ServeBroker], T]") -> T:
        """Returns what a function makes of this broker: the same object each time, such as a thread that publishes."""
        with self._lock:
            if make not in self._parts:
                if not self._parts:
                    atexit.register(self.close)  # for an app around this server that does not say when it ends
                self._parts[make] = make(self)
            found: T = self._parts[make]
            return found

    @contextmanager
    def channel(self) -> Iterator[DelayedChannel]:
        """Opens a channel of our transport, such as to read bindings. Redis has a limited time for each answer."""
        with self._connect() as connection:
            connection.transport_options = patient_options(connection.transport_options or {}, hurried=True)
            yield connection.default_channel

    def close(self) -> None:
        """Ends what works in the background, and closes the connections to Redis. The next caller connects again."""
        atexit.unregister(self.close)
        with self._lock:
            parts, self._parts = self._parts, {}
        for part in parts.values():  # a thread among them may need the store to come to its end
            if hasattr(part, "close"):
                part.close()
        with self._lock:
            store, self._store = self._store, None
            if store is not None:
                store.close()


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
    def store(self) -> DelayStore:
        """The store of the broker; connects if nobody has yet."""
        return self.broker.store


def serve_of(request: Request) -> Serve:
    """Returns the server that a request reached."""
    found: Serve = request.app.state.serve
    return found


def visible_queues(request: Request, store: DelayStore | None = None) -> list[str]:
    """Returns the names of the queues that the caller may see.

    While the node of a cluster is away that knows the others, these are those of the app.

    Args:
        request: The request.
        store: The store that knows queues; by default the broker's, which fails while a journal's database is away.
    """
    serve = serve_of(request)
    names = all_queues(store or serve.store, serve.broker.app, serve.settings.dead_letters)
    return caller_of(request).queues_of(names)
