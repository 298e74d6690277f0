"""Puts messages that reach a consumer before their time into the store, such as those of a stock publisher."""

from collections.abc import Callable, Collection
from functools import partial
from time import time
from typing import Any

from kombu.log import get_logger
from kombu.transport import virtual
from kombu.utils.json import dumps
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.consume.fetched import FetchedPayload
from kombu_delayq.message import Due, Message, eta_of
from kombu_delayq.redis import NotPrimary

logger = get_logger(__name__)

#: Takes a message for a consumer. kombu calls its consumers in this way.
Deliver = Callable[[Message], object]


class NotAdopted(Exception):
    """A message could not be adopted, because a node of a cluster is away. It is to be delivered again.

    Attributes:
        reason: The error of the Redis client.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class EarlyMessages:
    """Stands between a channel and its consumers.

    Args:
        channel: A channel of one of our transports.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def before(self, deliver: Deliver, queue: str, accept: Collection[str], *, no_ack: bool) -> Deliver:
        """Returns a callback that adopts messages whose time has not come, and delivers all others.

        Args:
            deliver: kombu's own callback of the consumer.
            queue: The queue that the consumer reads.
            accept: The content types that it accepts. Other bodies are not read for an eta.
            no_ack: Whether the consumer does not acknowledge.
        """
        return partial(self._adopt_or_deliver, deliver, queue, accept, no_ack)

    def _adopt_or_deliver(
        self, deliver: Deliver, queue: str, accept: Collection[str], no_ack: bool, message: Message
    ) -> None:
        due = eta_of(message, accept)
        if isinstance(message, FetchedPayload):
            message.has_eta = due is not None
        if due is not None and due.ms > time() * 1000 and self._adopt(queue, no_ack, message, due):
            return
        try:
            deliver(message)
        except ResponseError:
            # Redis took the message out of its queue and is too full to note that it is unacked.
            channel = self._channel
            tag = getattr(message, "tag", message["properties"]["delivery_tag"])
            if not no_ack and tag not in channel.qos._delivered:
                priority = channel._get_message_priority(message, reverse=False)
                channel.store.delivery.give_back(queue, priority, dumps(message))
            raise

    def _adopt(self, queue: str, no_ack: bool, message: Message, due: Due) -> bool:
        """Moves a message into the store. Returns whether the consumer is rid of it.

        If Redis refuses the script, the consumer keeps the message, as with stock kombu. If Redis is gone, the message
        stays among the unacked ones, like every message of a lost consumer.
        """
        channel = self._channel
        try:
            tag = ""  # a consumer that does not acknowledge holds no messages
            if not no_ack:
                held = channel.Message(message, channel=channel)
                channel.qos.append(held, tag := held.delivery_tag)
            is_gone: bool = channel.put_off(queue, message, due, tag) != "due"
        except RedisError as error:
            if not no_ack and channel.store.pool.is_partial(error):
                raise NotAdopted(error) from error
            if not no_ack and (isinstance(error, NotPrimary) or not isinstance(error, ResponseError)):
                raise
            logger.warning("a message of queue %r that is due later stays with this consumer: %s", queue, error)
            return False
        if is_gone and not no_ack:
            virtual.QoS.ack(channel.qos, tag)  # the script has removed it from Redis, or somebody else before
            channel.consumer.held.pop(tag, None)
        return is_gone
