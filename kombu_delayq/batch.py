"""``Producer.batch`` of kombu 5.7, with delayed messages in it."""

from collections import defaultdict
from typing import Any

from kombu.transport import redis as stock

from kombu_delayq.results import Offer

#: Most messages, and about the most bytes, that one call of the offer script stores, so that Redis stays responsive.
MAX_OFFERS = 200
MAX_BYTES = 250_000

_PublishBatch: Any = getattr(stock, "PublishBatch", object)


class DelayedPublishBatch(_PublishBatch):
    """Gathers delayed messages, and sends those of a queue in one call, in the round trip of the others."""

    OFFER = "delayq_offer"

    def __init__(self, channel: Any, max_size: int) -> None:
        super().__init__(channel, max_size)
        self._offers: defaultdict[tuple[str, int], list[Offer]] = defaultdict(list)
        # kombu calls the commands of a batch as methods of its pipeline, by name.
        setattr(self.pipeline, self.OFFER, self._gather)

    def flush(self) -> None:
        """Sends all gathered messages, once."""
        # Not through the pipeline's own methods, which prefix some of the keys.
        send = self.pipeline.pipeline_execute_command
        for (queue, expire_ms), offers in self._offers.items():
            for part in _parts(offers):
                for command in self.channel.store.offer_commands(queue, part, expire_ms):
                    send(*command)
        self._offers.clear()
        super().flush()

    def discard(self) -> None:
        """Drops what has not been sent."""
        self._offers.clear()
        super().discard()

    def _gather(self, queue: str, offer: Offer, expire_ms: int) -> None:
        self._offers[queue, expire_ms].append(offer)


def _parts(offers: list[Offer]) -> list[list[Offer]]:
    parts: list[list[Offer]] = [[]]
    size = 0
    for offer in offers:
        if parts[-1] and (len(parts[-1]) == MAX_OFFERS or size + offer.size > MAX_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(offer)
        size += offer.size
    return parts
