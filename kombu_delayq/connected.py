"""Gives a channel of kombu's Redis transport our options, connections and store."""

from functools import cached_property
from typing import Any

import redis
from redis.exceptions import ConnectionError as RedisConnectionError

from kombu_delayq import hooks
from kombu_delayq.consume.channel import ConsumingChannel
from kombu_delayq.options import Options
from kombu_delayq.redis import pools
from kombu_delayq.redis.errors import OF_ONE_SERVER, note_refusal, noticing_demotion
from kombu_delayq.redis.sentinel import FollowingPool
from kombu_delayq.store import DelayStore, TransportStore
from kombu_delayq.store.keys import Keys


class ConnectedChannel(ConsumingChannel):
    """A mixin, to the left of one of kombu's Redis channels: it knows how its broker is reached."""

    _store: TransportStore | None = None
    #: Errors of Redis that end a connection, because the same server would refuse what follows.
    _refusals = OF_ONE_SERVER

    @property
    def options(self) -> Options:
        """The transport options."""
        options: Options = self._transport().options
        return options

    @property
    def store(self) -> TransportStore:
        """The delayed messages, over this channel's connections."""
        pool = self.pool  # kombu makes another one after a fork
        if self._store is None or self._store.client.connection_pool is not pool:
            self._store = connect_store(self, pool)
        return self._store

    @property
    def has_slots(self) -> bool:
        """Whether the keys of this broker are in the hash slots of Redis Cluster."""
        return self.connection is not None and bool(self.connection.slots)

    def own_pool(self) -> redis.ConnectionPool:
        """Returns a pool like this channel's that outlives it. The caller closes it with ``pools.close``."""
        kept = vars(self).get("_sentinel_manager")
        try:
            pool: redis.ConnectionPool = self._get_pool()
        finally:
            if kept is not None:  # kombu notes the Sentinels of its latest pool, to close them with the channel
                self._sentinel_manager = kept
        return pool

    def separate_pool(self) -> redis.ConnectionPool:
        """Returns a pool for a transfer worker, whose connections wait for answers for a limited time."""
        pool = self.own_pool()
        pools.make_room(pool)
        if isinstance(pool, FollowingPool):
            pool.in_one_thread = True
        pools.wait_at_most(pool)
        return pool

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        self._transport()
        params = dict(super()._connparams(asynchronous=asynchronous))
        noticing = noticing_demotion(params["connection_class"], self._note_refusal, self._refusals)
        params["connection_class"] = noticing
        return params

    def _transport(self) -> Any:
        if self.connection is None or self.connection.client is None:
            # After a lost connection, a consumer tries to give its messages back, and a producer that declares a queue
            # still has this channel. With an error that kombu knows, both connect again. kombu's own AttributeError
            # would end them.
            raise RedisConnectionError("the connection is closed")
        return self.connection

    @cached_property
    def _broker(self) -> str:
        return str(self._transport().broker)

    def _note_refusal(self) -> None:
        note_refusal(self._broker)
        if self.connection is not None:
            self.connection.cycle.refused = True


def connect_store(channel: Any, pool: redis.ConnectionPool) -> DelayStore:
    """Makes a store of the database, key prefix and options that a channel has.

    Args:
        channel: A channel of one of our transports.
        pool: The connections to use.
    """
    # A plain client, because kombu's own one prefixes only the first key of a script.
    client = pools.client_of(pool)
    db = pool.connection_kwargs.get("db") or 0
    # In a cluster each queue has its own keys of what consumers hold; kombu's own are for fanouts alone.
    of_class = type(channel)
    unacked = (
        (of_class.unacked_key, of_class.unacked_index_key)
        if channel.has_slots
        else (channel.unacked_key, channel.unacked_index_key)
    )
    keys = Keys(channel.global_keyprefix, db, channel.sep, *unacked, slots=channel.has_slots)
    make = hooks.make_journaled_store if channel.options.journal_url else DelayStore
    store: DelayStore = make(client, keys, channel.priority_steps, channel.options)
    return store
