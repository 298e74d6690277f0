"""Adds our way of consuming to a channel of kombu's Redis transport."""

import re
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from kombu.log import get_logger
from kombu.serialization import registry
from kombu.transport import virtual
from redis.exceptions import RedisError

from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.early import EarlyMessages
from kombu_delayq.consume.fetched import FetchedMessage
from kombu_delayq.consume.fetcher import Fetcher
from kombu_delayq.consume.qos import FetchedQoS
from kombu_delayq.message import FORMATS
from kombu_delayq.store import MANY

logger = get_logger(__name__)

#: kombu's name for a process that waits for replies: a UUID made by a hash, so of version 3 or 5.
#: Source: kombu.common.generate_oid
_OID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[35][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
#: A consumer puts off the expiry of its queue again and again, each time after a third of the queue's x-expires.
KEEP_ALIVE_SHARE = 1 / 3
#: A consumer keeps its queues alive at least so often, in s.
KEEP_ALIVE_S = 60.0
#: Pause in s after a failed attempt.
RETRY_S = 1.0

# A base only for the type checker: the class is mixed into kombu's channels.
_Channel: Any = virtual.Channel if TYPE_CHECKING else object


class ConsumingChannel(_Channel):
    """A mixin, to the left of one of kombu's Redis channels.

    It fetches messages for consumers, adopts those that come too early, and keeps the threads of a consumer running.
    """

    Message = FetchedMessage

    #: Returns how many messages the consumer has and has not begun. A consumer that knows it sets this.
    backlog: Callable[[], int] = staticmethod(int)
    #: Returns how many processes of the consumer are free for messages beside those that it has. A consumer that knows
    #: it sets this.
    free: Callable[[], int] = staticmethod(lambda: MANY)
    #: Whether queues have begun of which the lease does not tell yet.
    _has_begun = False
    #: That Redis did not answer when the channel was closed.
    _silence: redis.TimeoutError | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._usage = Usage(self)
        self._adoption = EarlyMessages(self)
        super().__init__(*args, **kwargs)
        if self.options.consume == "reliable" and self.ack_emulation:
            self.QoS = FetchedQoS

    @property
    def fetches(self) -> bool:
        """Whether messages are fetched by our script, and not by kombu."""
        return self.connection is not None and self.connection.fetches

    @property
    def consumer(self) -> Consumer:
        """The consumer of this connection."""
        consumer: Consumer = self._transport().consumer
        return consumer

    @cached_property
    def fetcher(self) -> Fetcher:
        """Fetches messages for the consumers of this channel; in hash slots by one fetcher for each queue."""
        transport = self._transport()
        made: Fetcher = transport.server.fetcher_class(self, transport.cycle)
        return made

    def is_durable(self, queue: str) -> bool:
        """Whether a queue may hold delayed messages. Fanouts, and queues for replies of kombu and Celery, may not."""
        exchanges = [binding.exchange for binding in list(self.state.queue_index.get(queue, ()))]
        has_results = _has_results(queue, auto_delete=queue in self.auto_delete_queues)
        return queue not in self._fanout_queues and not has_results and not _is_mailbox(queue, exchanges)

    def durable_queues(self) -> set[str]:
        """Returns the names of the queues consumed here that may hold delayed messages."""
        return {queue for queue in list(self._active_queues) if self.is_durable(queue)}

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consumes a queue, adopts messages whose time has not come, and starts a transfer worker if none runs."""
        result = super().basic_consume(queue, no_ack, *args, **kwargs)
        self.connection.cycle.look()
        if self.fetches and queue not in self._fanout_queues:
            self.fetcher.begin(queue, no_ack=no_ack)
            if not no_ack:
                self._begin_lease_soon(queue)
        if self.is_durable(queue):
            self.consumer.waits.begin(queue)
            callbacks = self.connection._callbacks
            accept = _accepted_by(args[0] if args else kwargs.get("callback"))
            callbacks[queue] = self._adoption.before(callbacks[queue], queue, accept, no_ack=no_ack)
            self._usage.anew(queue)
            self._usage.of([queue])
            self.connection.start_transfer(self)
        return result

    def _basic_cancel(self, consumer_tag: str) -> Any:
        queue = self._tag_to_queue.get(consumer_tag)
        result = super()._basic_cancel(consumer_tag)
        self.connection.cycle.look()
        if queue is not None and self.fetches and not self._closing and queue not in self._active_queues:
            self.fetcher.end(queue)
        return result

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Returns the next message of a queue, or None."""
        if not self.fetches or not self.ack_emulation:
            return super().basic_get(queue, no_ack=no_ack, **kwargs)
        self._usage.of([queue])
        if not no_ack:
            self._begin_lease(self.store.keys.slot_group(queue))
            if not self.fetches:
                return super().basic_get(queue, no_ack=no_ack, **kwargs)
        found = self.fetcher.get(queue, no_ack=no_ack)
        if found is None:
            return None
        message = self.Message(found, channel=self)
        if not no_ack:
            self.qos.append(message, message.delivery_tag)
        return message

    def _begin_lease_soon(self, queue: str) -> None:
        """Takes a lease for a queue; with the next turn, for all queues that have begun by then, if there is one."""
        if self.consumer.has_lease:
            self._has_begun = True
        else:
            self._begin_lease(self.store.keys.slot_group(queue))

    def _begin_lease(self, group: str | None) -> None:
        try:
            self.connection.start_heartbeat(self, group)
        except redis.exceptions.NoPermissionError as error:
            self.stop_fetching(error)

    def stop_fetching(self, reason: object) -> None:
        """Goes on in kombu's own way of consuming, because Redis refuses ours.

        Raises:
            InvalidOptions: In hash slots there is no other way.
        """
        self.connection.server.check_brpop(reason)
        self.connection.fetches = False
        self.fetcher.drop()
        logger.warning("messages are consumed in kombu's own way, as with consume='brpop', because %s", reason)

    def _on_connection_disconnect(self, connection: Any) -> None:
        super()._on_connection_disconnect(connection)
        if "fetcher" in vars(self):
            self.fetcher.lose(connection)

    def close(self) -> None:
        """Gives back what is in hand, and closes the connections.

        Raises:
            redis.exceptions.TimeoutError: Redis has not answered within ``Options.answer_s``, and is asked no more.
        """
        if not self.closed and self.connection is not None:
            if self._silence is not None:
                raise self._silence
            for pool in self._pools:
                self.hurry(pool)  # a connection may have gone silent, which is why this is closed
            try:
                self._close_fetcher()
            except redis.TimeoutError as error:
                self._silence = error
                self.give_up()
                raise
        super().close()

    def give_up(self) -> None:
        """Closes the connections to a Redis that does not answer. The heartbeat does what is left to do, if it can."""
        if "fetcher" in vars(self):
            self.fetcher.drop(for_good=True)
        for pool in self._pools:
            pool.disconnect()

    def _close_fetcher(self) -> None:
        try:
            if "fetcher" in vars(self):
                self.fetcher.close()
        except redis.TimeoutError:
            raise
        except (redis.RedisError, OSError) as error:
            logger.info("what this consumer holds goes back when its lease ends: %s", error)
            self.fetcher.drop(for_good=True)

    def begin_again(self) -> None:
        """Starts the threads that a fork has not copied, and connects anew."""
        self.begin_transfer()
        if "fetcher" in vars(self):
            self.fetcher.drop()
            self.connection.start_heartbeat(self, None)

    def drop_connections(self) -> None:
        """Closes the connections that wait for messages."""
        if "fetcher" in vars(self):
            self.fetcher.drop()
        connection = getattr(self.__dict__.get("client"), "connection", None)
        if connection is not None:
            connection.disconnect()  # others may still use it

    def outlives(self, error: Exception) -> bool:
        """Takes new connections in place of those that Redis has closed with their token. Returns whether it could.

        Otherwise the worker would connect again. It would give back what it holds then, and tasks that run late-acked,
        or have just begun, would run twice with each new token.
        """
        if self.options.credential_provider is None or not self.fetches or self.fetcher.has_raised(error):
            return False
        try:
            self.drop_connections()
            self.pool.disconnect(inuse_connections=False)  # some are closed, and do not know yet
            self.store.client.ping()
        except (RedisError, OSError):
            return False
        logger.info("Redis has closed connections, and is reached with the credentials of now: %s", error)
        return True

    @property
    def _pools(self) -> list[redis.ConnectionPool]:
        return [pool for pool in (self._pool, self._async_pool) if pool is not None]

    def begin_transfer(self) -> None:
        """Starts a transfer worker in this process, unless one runs or no queue consumed here needs one."""
        if self.durable_queues():
            self.connection.start_transfer(self)

    def stay_in_use(self) -> None:
        """Keeps the queues consumed here from expiring. A caller may call it all the time: it rarely asks Redis."""
        if self._has_begun:
            self._begin_lease(None)
            self._has_begun = False
        self._usage.of(self._active_queues)

    def leaves_primary(self) -> bool:
        """Whether this consumer is at a primary that the Sentinels no longer name. Without Sentinels: never."""
        return False

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        self._usage.of([queue])
        return super()._get(queue)


def _accepted_by(callback: Any) -> Collection[str]:
    """Returns the content types that a consumer of kombu accepts, by its callback.

    Source: kombu.serialization.SerializerRegistry.loads: without ``accept``, those are accepted that are not disabled.
    """
    accept: Collection[str] | None = getattr(getattr(callback, "__self__", None), "accept", None)
    return FORMATS.difference(registry._disabled_content_types) if accept is None else accept


def _is_mailbox(queue: str, exchanges: Iterable[str]) -> bool:
    """Whether a queue is for commands of remote control, or for replies to them. Source: kombu.pidbox.Mailbox."""
    return any(exchange.endswith(".pidbox") and queue.endswith(f".{exchange}") for exchange in exchanges)


def _has_results(queue: str, *, auto_delete: bool) -> bool:
    """Whether a queue is for the results of one process. Source: celery.backends.rpc.RPCBackend.binding."""
    return auto_delete and _OID.fullmatch(queue) is not None


class Usage:
    """Keeps the queues alive that a channel consumes.

    The consumer does so itself, because it may run no transfer worker, and the transfer worker of another process does
    not know the x-expires of its queues.

    Args:
        channel: A channel of one of our transports.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._next_at: dict[str, float] = {}

    def of(self, queues: Iterable[str]) -> None:
        """Notes that queues are consumed. A caller may call it for every message, because it rarely asks Redis."""
        now = monotonic()
        for queue in [queue for queue in queues if self._next_at.get(queue, -inf) <= now]:
            self._next_at[queue] = now + self._keep_alive(queue)

    def anew(self, queue: str) -> None:
        """Keeps a queue alive with the next ``of``, such as after it was declared with another x-expires."""
        self._next_at.pop(queue, None)

    def _keep_alive(self, queue: str) -> float:
        """Keeps a queue alive. Returns after how many s to do so again."""
        expire_ms = self._channel.expire_ms(queue)
        if not self._channel.is_durable(queue):
            return inf
        next_s = min(expire_ms / 1000 * KEEP_ALIVE_SHARE if expire_ms else inf, KEEP_ALIVE_S)
        try:
            self._channel.store.queues.keep_alive(queue, expire_ms)
        except (RedisError, OSError) as error:  # if Redis is gone, the consumer notices it at once
            logger.debug("queue %r is not kept alive: %s", queue, error)
            return float(min(RETRY_S, next_s))
        return float(next_s)
