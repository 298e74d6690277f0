"""Publishes many messages at once: for ``Producer.batch`` of kombu 5.7, and the pages of ``send_many``."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import redis
from kombu.transport import redis as stock
from redis.exceptions import ResponseError

from kombu_delayq.connection import pools
from kombu_delayq.connection.ahead import SendAhead
from kombu_delayq.connection.text import Command
from kombu_delayq.message.pages import pages
from kombu_delayq.store.types import Offer, PageId, Placed

#: Largest number of messages, and about the largest number of bytes, that one call of the offer script stores. More
#: would keep Redis busy.
MAX_OFFERS = 200
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
        # The pipeline's own methods would prefix some of the keys.
        send = self.pipeline.pipeline_execute_command
        delivery = self.channel.store.delivery
        for (queue, expire_ms), offers in self._offers.items():
            for page in pages(offers, MAX_OFFERS, MAX_BYTES, attrgetter("size")):
                # What a journal gets stays there if the batch fails: kombu then calls the delivery uncertain.
                placed = delivery.place(queue, page, expire_ms)
                if placed.offers:
                    for command in delivery.offer_commands(queue, placed.offers, expire_ms):
                        send(*command)
        self._offers.clear()
        super().flush()

    def discard(self) -> None:
        """Drops the messages that have not been sent."""
        self._offers.clear()
        super().discard()

    def _gather(self, queue: str, offer: Offer, expire_ms: int) -> None:
        self._offers[queue, expire_ms].append(offer)


class PutAhead:
    """Publishes pages of sealed messages one after the other, without waiting for Redis in between.

    At most one page is on its way: ``confirm`` it before the next.

    Args:
        pool: A pool of connections. ``PutAhead`` uses one connection, and closes the pool in the end.
        place: Writes a page to where it belongs beside Redis.
        commands_of: Makes the commands that publish the part of a page that Redis gets.
        take_back: Takes back what ``place`` has written.
    """

    def __init__(
        self,
        pool: redis.ConnectionPool,
        place: Callable[[PageId, Sequence[Offer]], Placed],
        commands_of: Callable[[PageId, Sequence[Offer]], list[Command]],
        take_back: Callable[[Placed], None],
    ) -> None:
        self._pool = pool
        self._place, self._commands_of, self._take_back = place, commands_of, take_back
        self._placed = Placed(())
        self._ahead = SendAhead(pool)

    def put(self, page: PageId, offers: Sequence[Offer]) -> None:
        """Sends a page, with the arguments of ``DelayedChannel.put_many``, and returns before Redis has it."""
        self._placed = placed = self._place(page, offers)
        self._ahead.send(self._commands_of(page, placed.offers) if placed.offers else [])

    def confirm(self) -> None:
        """Waits until Redis has the page that is on its way, if there is one. Raises the first error of the page."""
        try:
            self._ahead.confirm()
        except ResponseError:
            self._take_back(self._placed)
            raise

    def close(self) -> None:
        """Closes the connection. Redis may get a page that is on its way, or not."""
        self._ahead.close()
        pools.close(self._pool)
