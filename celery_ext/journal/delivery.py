"""Messages come into Redis, into the journal, or into both."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, time

from kombu.log import get_logger
from redis.exceptions import ResponseError

from celery_ext.journal.both import PartOfBoth
from celery_ext.journal.errors import JournalRefused, JournalUnavailable
from celery_ext.journal.journal import Journal
from celery_ext.journal.lookup import JournaledLookup
from celery_ext.journal.placement import Placed, Placement
from kombu_delayq.message import DELIVERY_COUNT, Became, headers_of, info_of, is_doomed, key_of, properties_of, read
from kombu_delayq.redis import SendAhead
from kombu_delayq.store import Delivery, Offer, Offered, PageId, StoreClient, ack
from kombu_delayq.text import as_bytes, as_text

logger = get_logger(__name__)

#: For how long consumers do not ask the database again that has not answered, in s: each time the worker stands still.
PAUSE_S = 30.0


class JournaledDelivery(PartOfBoth[Delivery]):
    """Takes messages in: those that are due late go to the journal, the others to Redis.

    Rows come first. If the process dies in between, the message waits in the journal, or it has a row more than Redis
    has messages, which nobody looks at before Redis has lost its data.
    """

    def __init__(
        self,
        redis: Delivery,
        journal: Journal,
        client: StoreClient,
        placement: Placement,
        lookup: JournaledLookup,
    ) -> None:
        super().__init__(redis, journal)
        self._client = client
        self._placement = placement
        self._lookup = lookup
        self._asks_again_at = 0.0

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Stores messages until they are due, each where it belongs; see ``Delivery.offer``."""
        with self._placement.placing(queue, offers, expire_ms) as placed:
            if placed.offers:
                offered = self._redis.offer(queue, *placed.offers, expire_ms=expire_ms)
            else:
                offered = Offered("behind", 0, 0, 0)
        repeated = len(offers) - len(placed.offers) - placed.stored
        return offered._replace(offered=offered.offered + placed.stored, repeated=offered.repeated + repeated)

    @contextmanager
    def offering(
        self, offered: Iterable[tuple[str, Sequence[Offer], int]], send: Callable[..., object]
    ) -> Iterator[None]:
        """Stores messages, each where it belongs; see ``Delivery.offering``.

        The rows stay if the block fails: kombu then calls the delivery uncertain.
        """
        placed = [(queue, self._placement.place(queue, rest, ms).offers, ms) for queue, rest, ms in offered]
        with self._redis.offering([one for one in placed if one[1]], send):
            yield

    def offer_once(self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0) -> list[Became]:
        """Stores messages in Redis, however late they are due; see ``Delivery.offer_once``.

        What waits in the journal under their ids or keys is promoted first, so that the script sees all that waits. It
        decides: where it keeps a message out, the new row goes, and where it replaces one, the row of that one. Where
        Redis takes nothing from the journal yet, what waits there cannot leave, and so decides in the script's place.
        """
        return self.offer_once_returning(queue, mode, *offers, expire_ms=expire_ms)[0]

    def offer_once_returning(
        self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0
    ) -> tuple[list[Became], set[tuple[int, bytes]]]:
        """Does what ``offer_once`` does, and returns what went, too; see ``Delivery.offer_once_returning``."""
        same = {(as_text(one.id), one.priority, as_bytes(one.body)) for one in offers}
        keys = [key_of(as_text(one.id)) for one in offers]
        rows = self._lookup.promote_ids(queue, {*keys})
        here = [row for row in rows if (row.id, row.priority, row.body) not in same]
        now_ms = time() * 1000
        alive = {key_of(row.id): row.id for row in here if not is_doomed(row.body, row.due_ms, now_ms)}
        left = [one for one, key in zip(offers, keys, strict=True) if mode != "keep" or key not in alive]
        found, gone = self._decided(queue, mode, left, expire_ms) if left else ([], set())
        if mode == "keep":
            here = [row for row in here if key_of(row.id) not in alive]
        if here:  # after the messages: a caller that dies here leaves two, not none
            self._lookup.discard(queue, [(row.waiting, "") for row in here])
        gone |= {(row.priority, row.body) for row in here}
        by_redis = iter(found)
        became = [Became("kept", alive[key]) if mode == "keep" and key in alive else next(by_redis) for key in keys]
        if mode == "replace":
            became = [
                one._replace(outcome="replaced") if key in alive else one for one, key in zip(became, keys, strict=True)
            ]
        return became, gone

    def _decided(
        self, queue: str, mode: str, offers: Sequence[Offer], expire_ms: int
    ) -> tuple[list[Became], set[tuple[int, bytes]]]:
        """Lets Redis decide about messages, whose rows come first, and lets the rows follow."""
        noted = self._placement.note(queue, offers, expire_ms)
        try:
            found, gone = self._redis.offer_once_returning(queue, mode, *offers, expire_ms=expire_ms)
        except ResponseError:
            self._journal.delete_rows([seq for seq in noted.values() if seq is not None], state=None)
            raise
        contents = [(one.priority, as_bytes(one.body)) for one in offers]
        kept = {at for at, one in enumerate(found) if one.outcome == "kept"}
        # By its content: an attempt before this one may have made the row of what is kept out.
        stale = gone | {contents[at] for at in noted if at in kept}
        keys = [key_of(as_text(one.id)) for one in offers]
        left = {key: at for at, key in enumerate(keys) if at not in kept}
        stale.difference_update(contents[at] for at in left.values())
        if stale:
            self._lookup.delete_rows_of({*keys}, {(queue, *one) for one in stale})
        return found, gone

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages, each to where it belongs; see ``Delivery.put``."""
        with self._placement.placing(queue, offers, expire_ms, page) as placed:
            return self._redis.put(queue, page, placed.offers, expire_ms) if placed.offers else "behind"

    def put_ahead(
        self, ahead: SendAhead, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0
    ) -> Callable[[], None]:
        """Sends what Redis gets of a page; see ``Delivery.put_ahead``. Rows of a page that Redis refuses go again."""
        placed = self._placement.place(queue, offers, expire_ms, page)
        if not placed.offers:
            return lambda: None
        sent = self._redis.put_ahead(ahead, queue, page, placed.offers, expire_ms)

        def confirm() -> None:
            try:
                sent()
            except ResponseError:
                self._placement.take_back(placed)
                raise

        return confirm

    def adopt(self, queue: str, offer: Offer, tag: str, expire_ms: int = 0) -> str:
        """Moves a message that a consumer holds into the journal or the store; see ``Delivery.adopt``.

        A consumer has nobody to tell that the database does not answer, so the message waits in Redis then.
        """
        held = self._client.held(queue)
        if tag and self._client.ask("ZSCORE", held.unacked_index, tag) is None:
            return "gone"
        placed = self._place_early(queue, offer, expire_ms)
        if not placed.offers:
            if tag:  # the row is there, so the message waits even if the consumer has just lost it
                self._client.run(ack(held=held, going_on=0, tags=[tag]))
            return "behind"
        try:
            place = self._redis.adopt(queue, offer, tag, expire_ms)
        except ResponseError:
            self._placement.take_back(placed)
            raise
        if place == "due":
            self._placement.take_back(placed)
        return place

    def _place_early(self, queue: str, offer: Offer, expire_ms: int) -> Placed:
        if monotonic() < self._asks_again_at:
            return Placed([offer])
        try:
            return self._placement.place(queue, [offer], expire_ms, key_of=_content_of)
        except JournalRefused as error:
            others = ""
            if isinstance(error, JournalUnavailable):
                self._asks_again_at = monotonic() + PAUSE_S
                others = f". So do others that come too early, for {PAUSE_S:.0f} s"
            logger.warning(
                "the journal does not take a message of queue %r, which waits in Redis now: %s%s",
                queue,
                getattr(error.__cause__, "said", error.said),
                others,
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
