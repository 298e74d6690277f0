"""A subscription that ends with its process, so that the leader notices within seconds that a consumer has died."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from socket import socket
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError

from kombu_delayq.text import as_text

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: How often Redis is asked for a sign over the subscription, in s, and how long it may take: a load balancer drops a
#: connection over which nothing goes for minutes, without a word.
PING_S, ANSWER_S = 15.0, 2.5


class Presence:
    """A subscription to a channel for each name of a consumer. For one thread.

    Redis counts the subscribers, and the kernel closes the connection with the process. Scripts publish there to wake a
    consumer that would take a message. In a cluster it is a connection to the node that knows who leads, and moves with
    that. Elsewhere the leader tells over it which lists have messages.

    Args:
        store: The store of the broker, over connections of the caller's own.

    Attributes:
        names: The names of the consumer that Redis counts as subscribed.
        on_call: Called when a script wakes the consumer.
        on_lists: Called with what the leader has told last: whether each list has messages, by its name.
    """

    on_call: Callable[[], object] = staticmethod(lambda: None)
    on_lists: Callable[[Mapping[str, bool]], object] = staticmethod(lambda _: None)

    def __init__(self, store: "DelayStore") -> None:
        self.names: frozenset[str] = frozenset()
        self._store = store
        self._pubsub: Any = None
        self._node: Any = None
        self._asked_at = self._heard_at = 0.0
        self._is_refused = False

    def keep(self, names: Collection[str]) -> None:
        """Subscribes to the channels of these names, unless that is done. Replaces a connection that has ended.

        A few system calls where nothing has changed. Without the right to subscribe, only the lease counts.

        Raises:
            redis.exceptions.RedisError, OSError: Redis cannot be reached. There is no subscription then.
        """
        if self._is_refused:
            return
        try:
            node = self._store.pool.node_of(self._store.keys.lease)
            if node is not self._node:
                self.close()
                self._node = node
            if self._pubsub is not None:
                self._check()
            if not self.names.issuperset(names):
                self._subscribe(names)
        except NoPermissionError as error:
            self._is_refused = True
            self.close()
            logger.warning(
                "Redis forbids the channel of a consumer. When this process is killed, what it holds goes back when "
                "its lease ends, after consumer_ttl, and not within seconds: %s",
                error,
            )
        except BaseException:
            self.close()
            raise

    def wait(self, stop: socket, pause_s: float) -> None:
        """Waits until a script wakes the consumer, there is something to read from ``stop``, or the pause is over."""
        own = self._pubsub and self._pubsub.connection and self._pubsub.connection._sock
        with DefaultSelector() as selector:
            selector.register(stop, EVENT_READ)
            if own is not None:
                selector.register(own, EVENT_READ)
            if any(key.fileobj is own for key, _ in selector.select(pause_s)):
                with suppress(RedisError, OSError):  # `keep` meets the same error
                    self._read()

    def close(self) -> None:
        """Ends the subscription."""
        pubsub, self._pubsub, self.names = self._pubsub, None, frozenset()
        if pubsub is not None:
            pubsub.close()

    def _check(self) -> None:
        self._read()
        now = monotonic()
        if self._asked_at > self._heard_at and now - self._asked_at > ANSWER_S:
            raise redis.TimeoutError("Redis does not answer over a consumer's subscription")
        if now - max(self._asked_at, self._heard_at) > PING_S:
            self._asked_at = now
            self._pubsub.ping()

    def _read(self) -> None:
        # Where the connection has ended, redis-py connects and subscribes again.
        while (message := self._pubsub.get_message(timeout=0)) is not None:
            self._heard_at = monotonic()
            if message["type"] != "message":
                continue
            if as_text(message["channel"]) == self._store.keys.lists:
                self._hear(as_text(message["data"]))
            else:
                self.on_call()

    def _hear(self, told: str) -> None:
        names, _, there = told.rpartition(" ")
        with suppress(ValueError, TypeError):  # any client may publish there
            lists = json.loads(names)
            self.on_lists({str(name): bit == "1" for name, bit in zip(lists, there, strict=True)})

    def _subscribe(self, names: Collection[str]) -> None:
        if self._pubsub is None:
            self._pubsub = redis.Redis(connection_pool=self._node).pubsub()
        channels = {self._store.keys.presence(name) for name in names}
        if self._store.keys.groups is None:
            channels.add(self._store.keys.lists)
        self._pubsub.subscribe(*sorted(channels))
        until = monotonic() + ANSWER_S
        while channels:
            message = self._pubsub.get_message(timeout=ANSWER_S)
            if message is not None and message["type"] == "subscribe":
                channels.discard(as_text(message["channel"]))
            if monotonic() > until:
                raise redis.TimeoutError("Redis does not answer a consumer's SUBSCRIBE")
        self.names = frozenset(names)
