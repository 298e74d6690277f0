"""Publishes many messages at once: for ``Producer.batch`` of kombu 5.7, and the pages of ``send_many``."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from kombu.transport import redis as stock

from kombu_delayq.message import pages
from kombu_delayq.redis import SendAhead, close_pool
from kombu_delayq.store import Offer, PageId

#: Largest number of messages, and about the largest number of bytes, that one call of the offer script stores. More
#: would keep Redis busy.
MAX_OFFERS = 100
MAX_BYTES = 250_000

_PublishBatch: Any = getattr(stock, "PublishBatch", object)


class DelayedPublishBatch(_PublishBatch):
    """Gathers delayed messages, and sends those of one queue in one call, together with messages without a delay."""

    OFFER = "delayq_offer"

    def __init__(self, channel: Any, max_size: int) -> None:
        super().__init__(channel, max_size)
        self._offers: defaultdict[tuple[str, int], list[Offer]] = defaultdict(list)
        # kombu calls the commands of a batch as methods of its pipeline, by name.
        setattr(self.pipeline, self.OFFER, self._gather)

    def flush(self) -> None:
        """Sends all gathered messages, once."""
        offered = [
            (queue, page, expire_ms)
            for (queue, expire_ms), offers in self._offers.items()
            for page in pages(offers, MAX_OFFERS, MAX_BYTES, attrgetter("size"))
        ]
        # The pipeline's own methods would prefix some of the keys.
        with self.channel.store.delivery.offering(offered, self.pipeline.pipeline_execute_command):
            self._offers.clear()
            super().flush()

    def discard(self) -> None:
        """Drops the messages that have not been sent."""
        self._offers.clear()
        super().discard()

    def _gather(self, queue: str, offer: Offer, expire_ms: int) -> None:
        self._offers[queue, expire_ms].append(offer)


class PutAhead:
    """Publishes pages of messages in their canonical form one after the other, without waiting for Redis in between.

    At most one page is on its way: ``confirm`` it before the next.

    Args:
        channel: A channel. ``PutAhead`` uses one connection of its own.
        queue: The queue.
    """

    def __init__(self, channel: Any, queue: str) -> None:
        self._channel, self._queue = channel, queue
        self._delivery = channel.store.delivery
        self._pool = channel.own_pool()
        self._ahead = SendAhead(self._pool)
        self._on_way: Callable[[], None] | None = None

    def put(self, page: PageId, offers: Sequence[Offer]) -> None:
        """Sends a page, with the arguments of ``DelayedChannel.put_many``, and returns before Redis has it."""
        self._channel.check_version_for(offers)
        expire_ms = self._channel.expire_ms(self._queue)
        self._on_way = self._delivery.put_ahead(self._ahead, self._queue, page, offers, expire_ms)

    def confirm(self) -> None:
        """Waits until Redis has the page that is on its way, if there is one. Raises the first error of the page."""
        confirm, self._on_way = self._on_way, None
        if confirm is not None:
            confirm()

    def close(self) -> None:
        """Closes the connection. Redis may get a page that is on its way, or not."""
        self._ahead.close()
        close_pool(self._pool)
