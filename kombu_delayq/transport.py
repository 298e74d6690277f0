"""The Kombu transport: stock Redis, except that delayed messages wait in the store until they are due."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

import kombu
import redis
from kombu.log import get_logger
from kombu.transport import redis as stock
from kombu.utils.imports import symbol_by_name

from kombu_delayq import hooks, options, urls
from kombu_delayq.channel import DelayedChannel, connect_store
from kombu_delayq.consume import ANSWER_S, Consumer, DelayedPoller, Fetcher, Heartbeat
from kombu_delayq.redis import FollowingPool, wait_at_most
from kombu_delayq.store import Keys
from kombu_delayq.text import as_text
from kombu_delayq.transfer import TransferWorker

logger = get_logger(__name__)

#: By broker: start of an outage that outlived a connection of this process, in s of ``monotonic``. After the outage
#: Celery makes a new connection, whose transfer worker logs the end.
_down_since: dict[str, float] = {}


_Transport: Any = stock.Transport if TYPE_CHECKING else object


class Channel(DelayedChannel, stock.Channel):
    """A channel of :class:`Transport`."""


class SentinelChannel(DelayedChannel, stock.SentinelChannel):
    """A channel of :class:`SentinelTransport`."""

    def _get_pool(self, asynchronous: bool = False) -> FollowingPool:
        pool: FollowingPool = super()._get_pool(asynchronous)
        pool.__class__ = FollowingPool  # kombu offers no way to choose it
        return pool

    def leaves_primary(self) -> bool:
        """Whether this consumer is at a primary that the Sentinels no longer name."""
        return bool(self.active_queues) and self.async_pool.follow()


class PlainServer:
    """How a transport and its channels use its server. A server with hash slots has a class of its own.

    Args:
        client: A client of the server.
    """

    #: What fetches messages for a channel.
    fetcher_class: type[Any] = Fetcher

    def __init__(self, client: Any = None) -> None: ...

    def check(self, options: options.Options) -> None:
        """Raises InvalidOptions for an option that cannot be used there."""

    def check_brpop(self, reason: object) -> None:
        """Raises InvalidOptions where messages cannot be consumed in kombu's own way, with the reason for that."""

    def key_names(self, channel: Any) -> Keys:
        """Returns the names of keys for a channel."""
        names = channel.unacked_key, channel.unacked_index_key, channel.unacked_mutex_key
        return Keys(channel.global_keyprefix, 0, channel.sep, *names)


#: Parameters that the query of a socket's URL may have. Source: kombu.transport.redis.Channel._connparams
_OF_SOCKETS = {
    "virtual_host",
    *signature(redis.UnixDomainSocketConnection).parameters,
    *signature(redis.connection.AbstractConnection).parameters,
}


class DelayedTransport(_Transport):
    """A mixin, to the left of kombu's two transports."""

    #: With this kombu does not parse the URL, so that ``urls.configure`` can.
    can_parse_url = True
    default_port: Any  # kombu's
    cycle: Any
    #: Waits for messages.
    Poller: type[DelayedPoller] = DelayedPoller
    #: Whether the broker is a cluster of several nodes.
    has_nodes = False

    def __init__(self, client: Any, **kwargs: Any) -> None:
        self._scheme = urls.configure(
            client, sentinel=isinstance(self, stock.SentinelTransport), cluster=self.has_nodes
        )
        if self._scheme == "socket":
            urls.check_socket_query(client.hostname, _OF_SOCKETS)
        super().__init__(client, **kwargs)
        self.cycle.close()
        self.cycle = self.Poller()
        if self._scheme == "sentinel":
            self.Channel = SentinelChannel
            self.default_port = stock.SentinelTransport.default_port
        self.options, warning = options.parse(client.transport_options, self.Channel.from_transport_options)
        if warning:
            urls.warn_once(warning)
        steps = client.transport_options.get("priority_steps", self.Channel.priority_steps)
        Keys().lists_of_priorities(steps)  # kombu itself would fail with the first message, and unclearly
        self._transfer_worker: TransferWorker | None = None
        self._companion: Any = None
        self.consumer = Consumer(partial(_consumed, ref(self)))
        self.fetches = self.options.consume == "reliable"
        self._heartbeat: Heartbeat | None = None
        self.server: PlainServer | None = None
        hooks.expect_worker()

    def look_at_server(self, client: Any, prefix: str) -> PlainServer:
        """Finds out, once a connection, which kind of server the broker is, and returns that.

        Args:
            client: A client of the broker.
            prefix: The option ``global_keyprefix``.

        Raises:
            InvalidOptions: An option cannot be used there.
            InvalidBrokerURL: The broker is one node of several, of which this transport knows nothing.
        """
        if self.server is None:
            keys = Keys(prefix)
            has_slots = _has_slots(client, keys.queues, keys.due("unacked"))
            self.server = (symbol_by_name(urls.SLOT_SERVER) if has_slots else PlainServer)(client)
        self.server.check(self.options)
        return self.server

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Returns the broker as the URL that stock tools know, by default without its password."""
        return urls.describe(self.client, self._scheme, include_password, mask)

    def start_transfer(self, channel: DelayedChannel) -> None:
        """Starts a transfer worker beside the consumers of this connection, unless one runs or an option forbids it.

        A store that also keeps messages elsewhere brings a second worker.
        """
        worker = self._transfer_worker
        if self.options.transfer and (worker is None or not worker.is_own):
            connect = partial(connect_store, channel, channel.separate_pool())
            down_since = _down_since.pop(self.broker, None)
            self._transfer_worker = TransferWorker(
                connect,
                queues=self._consumed,
                consumer=self.consumer if self.fetches else None,
                down_since=down_since,
            )
            self._transfer_worker.start()
            if found := hooks.store_class(vars(self.options)):
                self._companion = found.companion(partial(connect_store, channel, channel.separate_pool()))
                self._companion.start()

    def start_heartbeat(self, channel: DelayedChannel, group: str | None) -> None:
        """Takes or renews the lease of this connection's consumer, and starts the thread that keeps it.

        While a node of a cluster is away, the thread goes on trying.

        Args:
            channel: A channel of this connection.
            group: The slot group in which it begins to consume; None for all.
        """
        try:
            self.consumer.renew(channel.store, group)
        except (redis.RedisError, OSError) as error:
            if not channel.store.pool.is_partial(error):
                raise
            logger.info("consumer %s has no lease in every queue yet: %s", self.consumer.name, error)
        if self._heartbeat is None or not self._heartbeat.is_alive:
            pool = channel.separate_pool()
            # What a silent network has left behind must not keep the thread from its subscription for long.
            wait_at_most(pool, ANSWER_S)
            store = connect_store(channel, pool)
            self._heartbeat = Heartbeat(
                self.consumer, store, partial(_fetchers, ref(self)), channel.visibility_timeout or inf
            )
            self._heartbeat.start()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Lets an event loop consume."""
        self.cycle.enter(loop)
        before = set(loop.on_tick)
        super().register_with_event_loop(connection, loop)
        self.cycle.turns |= loop.on_tick - before
        if self.fetches and kombu.VERSION < (5, 7):
            self.cycle.stay_in_loop()

    def close_connection(self, connection: Any) -> None:
        """Stops the threads of a connection, and closes it."""
        companion, self._companion = self._companion, None
        if companion is not None:
            companion.stop()
        worker, self._transfer_worker = self._transfer_worker, None
        if worker is not None:
            worker.stop()
            if worker.down_since is not None:
                _down_since[self.broker] = worker.down_since
        try:
            self._close_channels()
            super().close_connection(connection)
        finally:
            # Closing fails where Redis is away. Then what the consumer holds goes back when its lease has ended.
            heartbeat, self._heartbeat = self._heartbeat, None
            if heartbeat is not None:
                heartbeat.stop()

    def _close_channels(self) -> None:
        """Closes the channels, the first one first. Once Redis does not answer, the others ask it nothing."""
        failed: Exception | None = None
        for channel in list(self.channels):
            try:
                if isinstance(failed, redis.TimeoutError):
                    channel.give_up()
                else:
                    channel.close()
            except (redis.RedisError, OSError) as error:
                failed = failed or error
        if failed is not None:
            raise failed

    @property
    def broker(self) -> str:
        """Identifies the broker: its URL, with its alternates."""
        return ";".join(self.client.alt) or self.as_uri("")

    def _consumed(self) -> set[str]:
        return set().union(*(channel.durable_queues() for channel in list(self.channels)))


class Transport(DelayedTransport, stock.Transport):
    """Redis with delayed delivery. Takes ``redis``, ``rediss``, ``sentinel`` and ``socket`` URLs and our own."""

    Channel = Channel

    def __new__(cls, client: Any, **kwargs: Any) -> Any:
        """Returns a transport for a cluster if the URL is that of one: kombu drops what stands behind a ``+``."""
        if not cls.has_nodes and urls.is_cluster(client):
            cls = symbol_by_name(urls.CLUSTER)
        return super().__new__(cls)


class SentinelTransport(DelayedTransport, stock.SentinelTransport):
    """Redis behind Sentinel, with delayed delivery. Needs the transport option ``master_name``."""

    Channel = SentinelChannel


def _fetchers(transport: Callable[[], DelayedTransport | None]) -> list[Fetcher] | None:
    """Returns the fetchers of a transport's channels; None once nobody else refers to the transport."""
    found = transport()
    return (
        None
        if found is None
        else [vars(channel)["fetcher"] for channel in list(found.channels) if "fetcher" in vars(channel)]
    )


def _consumed(transport: Callable[[], DelayedTransport | None]) -> set[str]:
    """Returns the names of the queues that a transport consumes."""
    found = transport()
    return set() if found is None else set().union(*(channel.active_queues for channel in list(found.channels)))


def _has_slots(client: redis.Redis, *apart: str) -> bool:
    """Whether a server keeps keys in hash slots, be it one of many nodes or a single one.

    Such a server refuses commands and scripts whose keys are in different slots. Managed services enforce that also
    where they show one node only. Some of them do not call themselves a cluster, so a command is tried as well.

    Args:
        client: A plain Redis client.
        apart: Two keys in different slots.
    """
    try:
        client.execute_command("EVAL", "return 0", len(apart), *apart)  # each user of a broker has this right
    except redis.ResponseError as error:
        if "CROSSSLOT" in f"{type(error).__name__.upper()} {error}":
            return True
    try:
        found = client.execute_command("HELLO")
    except redis.ResponseError:  # unknown, or renamed by the server
        return False
    fields = found if isinstance(found, Mapping) else dict(zip(found[::2], found[1::2], strict=True))
    return {as_text(name): value for name, value in fields.items()}.get("mode") in (b"cluster", "cluster")
