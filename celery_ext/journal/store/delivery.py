"""Publishing into Redis, into the journal, or into both."""

import json
from collections.abc import Sequence
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError
from sqlalchemy.exc import SQLAlchemyError

from celery_ext.journal.store.tiers import Tiers
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.errors import JournalUnavailable
from kombu_delayq.message.fields import DELIVERY_COUNT, headers_of, info_of, properties_of, read
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import Offer, Offered, PageId, Placed

logger = get_logger(__name__)

#: For how long consumers do not ask the database again that has not answered, in s: each time the worker stands still.
PAUSE_S = 30.0


class JournaledDelivery(Delivery):
    """Takes messages in: those that are due late go to the journal, the others to Redis.

    Rows come first. If the process dies in between, the message waits in the journal, or it has a row more than Redis
    has messages, which nobody looks at before Redis has lost its data.

    Args:
        client: As of ``Delivery``.
        registry: As of ``Delivery``.
        tiers: Decides where a message waits.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry, tiers: Tiers) -> None:
        super().__init__(client, registry)
        self._tiers = tiers
        self._asks_again_at = 0.0

    def place(self, queue: str, offers: Sequence[Offer], expire_ms: int = 0, page: PageId | None = None) -> Placed:
        """Writes messages into the journal; see ``Delivery.place``."""
        return self._tiers.place(queue, offers, expire_ms, page)

    def take_back(self, placed: Placed) -> None:
        """Deletes rows that Redis has refused; see ``Delivery.take_back``."""
        self._tiers.take_back(placed)

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Stores messages until they are due, each where it belongs; see ``Delivery.offer``."""
        with self._tiers.placing(queue, offers, expire_ms) as placed:
            if placed.offers:
                offered = super().offer(queue, *placed.offers, expire_ms=expire_ms)
            else:
                offered = Offered("behind", 0, 0, 0)
        repeated = len(offers) - len(placed.offers) - placed.stored
        return offered._replace(offered=offered.offered + placed.stored, repeated=offered.repeated + repeated)

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages, each to where it belongs; see ``Delivery.put``."""
        with self._tiers.placing(queue, offers, expire_ms, page) as placed:
            return super().put(queue, page, placed.offers, expire_ms) if placed.offers else "behind"

    def adopt(self, queue: str, offer: Offer, tag: str, unacked_index: str, unacked: str, expire_ms: int = 0) -> str:
        """Moves a message that a consumer holds into the journal or the store; see ``Delivery.adopt``.

        A consumer has nobody to tell that the database does not answer, so the message waits in Redis then.
        """
        if tag and not self._client.ask("HEXISTS", unacked, tag):
            return "gone"
        placed = self._place_early(queue, offer, expire_ms)
        if not placed.offers:
            if tag:  # the row is there, so the message waits even if the consumer has just lost it
                self._client.run("ack", [unacked_index, unacked], [tag])
            return "behind"
        try:
            place = super().adopt(queue, offer, tag, unacked_index, unacked, expire_ms)
        except ResponseError:
            self._tiers.take_back(placed)
            raise
        if place == "due":
            self._tiers.take_back(placed)
        return place

    def _place_early(self, queue: str, offer: Offer, expire_ms: int) -> Placed:
        if monotonic() < self._asks_again_at:
            return Placed([offer])
        try:
            return self._tiers.place(queue, [offer], expire_ms, key_of=_content_of)
        except (JournalUnavailable, SQLAlchemyError) as error:
            others = ""
            if isinstance(error, JournalUnavailable):
                self._asks_again_at = monotonic() + PAUSE_S
                others = f". So do others that come too early, for {PAUSE_S:.0f} s"
            logger.warning(
                "the journal does not take a message of queue %r, which waits in Redis now: %s%s",
                *(queue, type(error).__name__, others),
            )
            return Placed([offer])


def _content_of(offer: Offer) -> bytes:
    """Returns what stays the same in a message when it comes back from a consumer that has died.

    Such a consumer may have written the row and died before the message left its hands.
    """
    message = read(as_bytes(offer.body))
    headers, properties, info = dict(headers_of(message)), dict(properties_of(message)), dict(info_of(message))
    headers.pop("redelivered", None)
    info.pop("redelivered", None)
    for name in ("delivery_tag", "delivery_info", DELIVERY_COUNT):
        properties.pop(name, None)
    same = [as_text(offer.id), offer.priority, message.get("body"), headers, properties, info]
    return json.dumps(same, sort_keys=True).encode()
