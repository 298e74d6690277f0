"""Publishes many messages at once: for ``Producer.batch`` of kombu 5.7, and the pages of ``send_many``."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import redis
from kombu.transport import redis as stock
from redis.exceptions import ResponseError

from kombu_delayq.connection import pools
from kombu_delayq.connection.ahead import SendAhead
from kombu_delayq.connection.text import Command
from kombu_delayq.message.pages import pages
from kombu_delayq.options import Options
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
        queues = {queue for queue, _ in self._offers}
        self._offers.clear()
        super().flush()
        for queue in queues:
            delivery.confirm(queue)

    def discard(self) -> None:
        """Drops the messages that have not been sent."""
        self._offers.clear()
        super().discard()

    def _gather(self, queue: str, offer: Offer, expire_ms: int) -> None:
        self._offers[queue, expire_ms].append(offer)


def by_part(options: Options, queue: str, offers: Sequence[Offer]) -> dict[str, Sequence[Offer]]:
    """Returns messages by the queue that gets them: several if the queue is spread, see the option ``queue_parts``."""
    if queue not in options.spreads:
        return {queue: offers}
    parts: defaultdict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        parts[options.part_of(queue, offer.id)].append(offer)
    return dict(parts)


class PagePart(NamedTuple):
    """What one queue gets of a page of messages: all of it, unless the page is for a queue that is spread.

    Attributes:
        queue: The queue.
        page: Id of this part of the page.
        offers: The messages.
    """

    queue: str
    page: PageId
    offers: Sequence[Offer]


def page_by_part(options: Options, queue: str, page: PageId, offers: Sequence[Offer]) -> list[PagePart]:
    """Returns what the queues get of a page."""
    parts = by_part(options, queue, offers)
    if queue in parts:
        return [PagePart(queue, page, offers)]
    return [PagePart(part, page._replace(sender=f"{page.sender}:{part}"), own) for part, own in parts.items()]


class PutAhead:
    """Publishes pages of sealed messages one after the other, without waiting for Redis in between.

    At most one page is on its way: ``confirm`` it before the next.

    Args:
        pool: A pool of connections. ``PutAhead`` uses one connection, and closes the pool in the end.
        split: Returns what the queues get of a page.
        place: Writes what a queue gets to where it belongs beside Redis.
        commands_of: Makes the commands that publish what Redis gets of that.
        take_back: Takes back what ``place`` has written.
        settle: Called with each queue when Redis has a page.
    """

    def __init__(
        self,
        pool: redis.ConnectionPool,
        split: Callable[[PageId, Sequence[Offer]], list[PagePart]],
        place: Callable[[PagePart], Placed],
        commands_of: Callable[[PagePart], list[Command]],
        take_back: Callable[[Placed], None],
        settle: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._split, self._place, self._commands_of, self._take_back = split, place, commands_of, take_back
        self._settle = settle
        self._placed: list[Placed] = []
        self._queues: list[str] = []
        self._ahead = SendAhead(pool)

    def put(self, page: PageId, offers: Sequence[Offer]) -> None:
        """Sends a page, with the arguments of ``DelayedChannel.put_many``, and returns before Redis has it."""
        parts = self._split(page, offers)
        self._placed = [self._place(part) for part in parts]
        pairs = zip(parts, self._placed, strict=True)
        for_redis = [part._replace(offers=placed.offers) for part, placed in pairs if placed.offers]
        self._queues = [part.queue for part in for_redis]
        self._ahead.send([command for part in for_redis for command in self._commands_of(part)])

    def confirm(self) -> None:
        """Waits until Redis has the page that is on its way, if there is one. Raises the first error of the page."""
        try:
            replies = self._ahead.confirm()
        except ResponseError:
            for placed in self._placed:
                self._take_back(placed)
            raise
        if replies:
            for queue in self._queues:
                self._settle(queue)

    def close(self) -> None:
        """Closes the connection. Redis may get a page that is on its way, or not."""
        self._ahead.close()
        pools.close(self._pool)
