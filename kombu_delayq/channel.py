"""Adds delayed delivery to a channel of kombu's Redis transport."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from time import time
from typing import TYPE_CHECKING, Any
from weakref import ref

import redis
from kombu.log import get_logger
from kombu.transport import virtual
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from kombu_delayq import hooks
from kombu_delayq.consume import ConsumingChannel
from kombu_delayq.errors import DelayChainCancelled
from kombu_delayq.message import (
    CHAIN,
    CHAIN_ID,
    DEAD_LETTER,
    Due,
    Message,
    canonical,
    due_of,
    keep_text,
    omit_defaults,
    once,
    stamp_published,
    to_json,
    uuid_of,
)
from kombu_delayq.options import Options
from kombu_delayq.publish_batch import DelayedPublishBatch
from kombu_delayq.redis import (
    TRANSFER_CONNECTIONS,
    FollowingPool,
    check_writes,
    is_full,
    make_room,
    note_refusal,
    noticing_demotion,
    pool_of,
    raise_as_lost,
    wait_at_most,
    with_provider,
)
from kombu_delayq.store import DelayStore, Keys, Offer, PageId
from kombu_delayq.text import as_text, readable

logger = get_logger(__name__)

# A base only for the type checker: the class is mixed into kombu's channels.
_Channel: Any = virtual.Channel if TYPE_CHECKING else object


class OfferingChannel(_Channel):
    """A mixin, to the left of a channel of kombu's that has our ``options``: it writes messages for the store."""

    def offer_of(self, message: Message, due: Due) -> Offer:
        """Returns a message in the form that the store takes."""
        identity, body = canonical(message, due.task_id)
        when = f"+{due.ms!r}" if due.relative else repr(due.ms)
        return Offer(identity, when, self._get_message_priority(message, reverse=False), body)

    def put_off(self, queue: str, message: Message, due: Due, tag: str) -> str:
        """Moves a message that this consumer has into the store, until it is due; replies as ``Delivery.adopt``.

        Args:
            queue: The queue from which it came.
            message: The message.
            due: When it is due.
            tag: Its delivery tag; empty if the consumer has the only copy.
        """
        offer = self.offer_of({**message, "properties": dict(message["properties"])}, due)
        place: str = self.store.delivery.adopt(queue, offer, tag, self.expire_ms(queue))
        return place

    def expire_ms(self, queue: str) -> int:
        """Returns ``x-expires`` of a queue in ms, 0 for none. kombu knows it from 5.7 on, for Redis."""
        return int(getattr(self, "_expires", {}).get(queue) or 0)

    def put_once(self, queue: str, message: Message, due: Due | None, mode: str) -> None:
        """Stores a message unless one of its id or waiting key waits, or in place of that; ``once.became`` says which.

        A message that is due at once goes through the store, too, so that Redis decides in one step. It keeps its own
        delivery tag, since a consumer may hold the message before it of the same content.
        """
        if due is not None:
            self._check_delay(due)
        if due is not None and (due.relative or due.ms > self.store.now_ms()):
            offer = self.offer_of(message, due)
        else:
            stamp_published(message, None)
            identity = message["properties"].get("correlation_id") or message["properties"]["delivery_tag"]
            offer = Offer(str(identity), "+0", self._get_message_priority(message, reverse=False), to_json(message))
        [became] = self.store.delivery.offer_once(queue, mode, offer, expire_ms=self.expire_ms(queue))
        once.became.set(became)

    def _put_fanout(self, exchange: str, message: Message, *args: Any, **kwargs: Any) -> None:
        hooks.check_unread(message["properties"])
        once.refuse_mode(message, exchange)
        super()._put_fanout(exchange, message, *args, **kwargs)

    def _put_step(self, queue: str, message: Message, due: Due | None) -> None:
        """Stores a step of a delay chain, even one that is due at once, so that a cancelled chain ends."""
        due = due or Due(0.0, True, message["properties"].get("correlation_id"))
        self._check_delay(due)
        self._step(queue, message["properties"][CHAIN_ID], self.offer_of(message, due))

    def _step(self, queue: str, chain: str, offer: Offer) -> None:
        if self.store.chains.step(queue, chain, offer, self.expire_ms(queue)) == "cancelled":
            raise DelayChainCancelled(f"the delay chain of task {as_text(offer.id)} was cancelled")

    def _check_delay(self, due: Due) -> None:
        if self.options.max_delay is None:
            return
        delay_s = (due.ms if due.relative else due.ms - time() * 1000) / 1000
        self.options.check_delay(delay_s, f"task {due.task_id}" if due.task_id else "")

    def _inplace_augment_message(self, message: Message, *address: str) -> None:
        if not self.options.compact:
            super()._inplace_augment_message(message, *address)
            return
        omit_defaults(message)
        body = message["body"]
        super()._inplace_augment_message(message, *address)
        keep_text(message, body)


class DelayedChannel(OfferingChannel, ConsumingChannel):
    """A mixin, to the left of one of kombu's Redis channels: it stores delayed messages of publishers.

    It knows our options, our pools of connections and our store.
    """

    _store: DelayStore | None = None
    #: The client of kombu's commands, which any thread may use.
    _commands: redis.Redis | None = None
    _version_checked = False
    #: Names the keys of this broker.
    key_names = Keys()
    #: kombu's.
    global_keyprefix: str
    socket_timeout: float | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
            self.global_keyprefix = self.global_keyprefix or ""  # None is no prefix, as for kombu
            broker = self._broker
            try:
                check_writes(broker, lambda: self.client, self.unacked_key)
                server = self._transport().look_at_server(self.client, self.global_keyprefix)
                self.key_names = server.key_names(self)
            except BaseException:
                self.close()
                raise
        except ResponseError as error:
            raise_as_lost(error)
            raise

    @property
    def options(self) -> Options:
        """The transport options."""
        options: Options = self._transport().options
        return options

    @property
    def store(self) -> DelayStore:
        """The delayed messages, over this channel's connections."""
        pool = self.pool  # kombu makes another one after a fork
        if self._store is None or self._store.client.connection_pool is not pool:
            self._store = connect_store(self, pool)
        return self._store

    def _create_client(self, asynchronous: bool = False) -> Any:
        # kombu makes one for each message, which takes a tenth of the time of publishing it.
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._commands is None or self._commands.connection_pool is not self.pool:
            self._commands = super()._create_client()
        return self._commands

    def own_pool(self) -> redis.ConnectionPool:
        """Returns a pool like this channel's that outlives it. The caller closes it with ``close_pool``."""
        kept = vars(self).get("_sentinel_manager")
        try:
            pool: redis.ConnectionPool = self._get_pool()
        finally:
            if kept is not None:  # kombu notes the Sentinels of its latest pool, to close them with the channel
                self._sentinel_manager = kept
        return pool

    def patient_pool(self, connections: int) -> redis.ConnectionPool:
        """Returns a pool of its own for so many connections, which wait for answers for a limited time."""
        pool = self.own_pool()
        make_room(pool, connections)
        self.hurry(pool)
        return pool

    def hurry(self, pool: redis.ConnectionPool) -> None:
        """Lets a pool wait for answers for ``Options.answer_s``, unless ``socket_timeout`` says how long."""
        if self.socket_timeout is None:
            wait_at_most(pool, self.options.answer_s)

    def separate_pool(self) -> redis.ConnectionPool:
        """Returns a pool for a transfer worker, whose connections wait for answers for a limited time."""
        pool = self.patient_pool(TRANSFER_CONNECTIONS)
        if isinstance(pool, FollowingPool):
            pool.in_one_thread = True
        return pool

    def create_publish_batch(self, max_size: int) -> DelayedPublishBatch:
        """Makes a batch for ``Producer.batch``, kombu 5.7."""
        return DelayedPublishBatch(self, max_size)

    def put_many(self, queue: str, page: PageId, offers: Sequence[Offer]) -> None:
        """Publishes a page of messages in their canonical form; the arguments are those of ``Delivery.put``."""
        self.check_version_for(offers)
        self.store.delivery.put(queue, page, offers, self.expire_ms(queue))

    def put_many_once(self, queue: str, offers: Sequence[Offer], mode: str) -> list[once.Became]:
        """Stores messages in their canonical form as ``put_once`` stores one; an empty due time is now; one round trip.

        Returns:
            What became of each.
        """
        self._check_version()
        rows = [offer if offer.due else offer._replace(due="+0") for offer in offers]
        return self.store.delivery.offer_once(queue, mode, *rows, expire_ms=self.expire_ms(queue))

    def put_one(self, queue: str, offer: Offer, chain: str | None = None, *, in_chain: bool = False) -> None:
        """Publishes a message in its canonical form, as ``_put`` publishes one that is not written yet.

        Args:
            queue: The queue.
            offer: The message, whose delay ``max_delay`` allows; an empty due time is now.
            chain: Id of the delay chain of which the message is a step, or None.
            in_chain: Whether the message has a delay chain.
        """
        if chain is not None:
            return self._step(queue, chain, offer)
        if in_chain:
            self.store.chains.use_chains()  # before the task can run
        if offer.due:
            self._check_version()
            self.store.delivery.offer(queue, offer, expire_ms=self.expire_ms(queue))
        else:
            self.store.delivery.push(queue, offer, self.expire_ms(queue))
        return None

    def _put(self, queue: str, message: Message, **kwargs: Any) -> Any:
        self.key_names.check_queue(queue)
        due = due_of(message)
        if CHAIN_ID in message["properties"]:
            return self._put_step(queue, message, due)
        properties = message["properties"]
        if not hooks.UNREAD.isdisjoint(properties):
            hooks.check_unread(properties)
        if DEAD_LETTER in properties:
            self.store.queues.note_dead_letters(queue)
        if properties.get(CHAIN) is not None:
            self.store.chains.use_chains()  # before the task can run
        if once.IF_WAITING in properties:
            mode, message = once.read_mode(message)
            if mode is not None:
                self._check_version()
                return self.put_once(queue, message, due, mode)
        if due is None or not (due.relative or due.ms > time() * 1000):
            stamp_published(message, None)
            return super()._put(queue, message, **kwargs)
        self._check_delay(due)
        self._check_version()
        stamp_published(message, due)
        offer = self.offer_of(message, due)
        batch = kwargs.get("_publish_batch")
        if batch is not None:
            batch.add(DelayedPublishBatch.OFFER, queue, offer, self.expire_ms(queue))
        else:
            self.store.delivery.offer(queue, offer, expire_ms=self.expire_ms(queue))
        return None

    def _q_for_pri(self, queue: str, pri: int) -> str:
        return self.key_names.in_slot_of(queue, str(super()._q_for_pri(queue, pri)))

    def _next_delivery_tag(self) -> str:
        # A random UUID like kombu's, in a third of the time.
        return uuid_of(os.urandom(16).hex())

    def check_version_for(self, offers: Sequence[Offer]) -> None:
        """Checks the version of Redis, once, if a message among some has a due time."""
        if any(offer.due for offer in offers):
            self._check_version()

    def _check_version(self) -> None:
        if not self._version_checked:
            self.store.check_version()
            self._version_checked = True

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        """Deletes a queue with its delayed messages; with ``if_empty`` only if it has no message, delayed or not.

        A full Redis refuses kombu's transaction. A channel that closes, as when a worker connects again, goes on then.
        """
        if if_empty and self.store.queues.size(queue):
            return
        try:
            super().queue_delete(queue, if_unused=if_unused, if_empty=if_empty, **kwargs)
        except redis.ResponseError as error:
            if not (self._closing and is_full(error)):
                raise
            logger.info("queue %r is not deleted, because Redis is full", queue)

    def after_reply_message_received(self, queue: str) -> None:
        """Deletes the queue of replies to remote control. These count, also while Redis is full or a node is away."""
        try:
            super().after_reply_message_received(queue)
        except (redis.RedisError, OSError) as error:
            if not (self.store.pool.is_partial(error) or is_full(error)):
                raise
            logger.info("queue %r of replies is not deleted: %s", queue, readable(error))

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> Any:
        self.store.keys.check_queue(queue)
        self._usage.anew(queue)
        return super()._new_queue(queue, auto_delete=auto_delete, **kwargs)

    def _purge(self, queue: str) -> int:
        self.key_names.check_queue(queue)
        return self.store.queues.purge(queue, with_ready=True)

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        if queue not in self._fanout_queues:
            self.store.queues.delete(queue)  # before kombu, whose DEL frees each message before Redis goes on
        super()._delete(queue, *args, **kwargs)

    def _size(self, queue: str) -> int:
        # kombu counts in a transaction, which no node of a cluster runs while the slot of the queue moves.
        return self.store.fetching.size(queue)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        # kombu's own method asks for names without the prefix, which are another app's, and in slots not in one slot.
        return self._size(queue) > 0 or self.store.queues.size(queue) > 0

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        self._transport()
        params = dict(super()._connparams(asynchronous=asynchronous))
        if params["socket_timeout"] is None and "socket_timeout" not in self.connection.client.transport_options:
            params["socket_timeout"] = Options.late_answer_s
        params["connection_class"] = self._noticing(params["connection_class"])
        return with_provider(params, self.options.credential_provider)

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

    def _noticing(self, connection_class: type[Any]) -> type[Any]:
        """Returns a class of connections that end when the server refuses what follows, too."""
        return noticing_demotion(connection_class, partial(_note_refusal, ref(self), self._broker))


def _note_refusal(channel: Callable[[], DelayedChannel | None], broker: str) -> None:
    """Notes that a broker takes no writes. Connections may outlive their channel, and do not keep it."""
    note_refusal(broker)
    found = channel()
    if found is not None and found.connection is not None:
        found.connection.cycle.refused = True


def connect_store(channel: Any, pool: redis.ConnectionPool) -> DelayStore:
    """Makes a store of the database, key prefix and options that a channel has.

    Args:
        channel: A channel of one of our transports.
        pool: The connections to use.
    """
    # A plain client, because kombu's own one prefixes only the first key of a script.
    client = pool_of(pool).client()
    db = pool.connection_kwargs.get("db") or 0
    keys = replace(channel.key_names, db=db)
    make = hooks.store_class(vars(channel.options)) or DelayStore
    store: DelayStore = make(client, keys, channel.priority_steps, channel.options)
    return store
