"""Delay chains whose steps wait in Redis or in the journal."""

from collections.abc import Sequence
from time import time

from celery_ext.journal.both import PartOfBoth
from celery_ext.journal.journal import Journal
from celery_ext.journal.placement import Placed, Placement
from celery_ext.journal.promotion import Promotion, Row
from celery_ext.journal.schema import WAITING
from kombu_delayq.message import headers_of, read
from kombu_delayq.store import DelayChains, Offer, StoreClient
from kombu_delayq.text import as_bytes, as_text


class JournaledChains(PartOfBoth[DelayChains]):
    """Stores steps where they belong. At most one step of a chain waits, in whichever of the two.

    The row of a far step is written first. Then Redis says whether the chain was cancelled, and whether a step waits
    there. A cancel notes the id first and looks at the rows then, so one of the two sees the other.
    """

    def __init__(
        self, redis: DelayChains, journal: Journal, client: StoreClient, placement: Placement, promotion: Promotion
    ) -> None:
        super().__init__(redis, journal)
        self._client = client
        self._placement = placement
        self._promotion = promotion

    def step(self, queue: str, chain: str, offer: Offer, expire_ms: int = 0, *, stores: bool = True) -> str:
        """Stores the next step of a delay chain; see ``DelayChains.step``."""
        if not stores:
            return self._redis.step(queue, chain, offer, expire_ms, stores=False)
        with self._placement.placing(queue, [offer], expire_ms) as placed:
            if not placed.offers:
                return self._far_step(queue, chain, offer, expire_ms, placed)
            return self._near_step(queue, chain, offer, expire_ms, placed)

    def _far_step(self, queue: str, chain: str, offer: Offer, expire_ms: int, placed: Placed) -> str:
        word = self._redis.step(queue, chain, offer, expire_ms, stores=False)
        if word == "cancelled":
            self._remove(self._rows(chain, offer))
            return word
        if word == "waits":
            self._placement.take_back(placed)
            return word
        rows = self._rows(chain, offer)
        # Of two copies of one step, the one that came first stays: each caller sees the same.
        waiting = [row for row in rows if row.state == WAITING]
        best = max(waiting, key=lambda row: (_position(row.body), -row.seq), default=None)
        own = as_bytes(offer.body)
        if best is not None and best.body != own:
            self._placement.take_back(placed)
            return "waits"
        # Also rows of steps that this one has replaced in Redis: a restore would bring them back.
        if self._remove([row for row in rows if row.body != own and _position(row.body) <= _position(own)]):
            self._redis.step(queue, chain, offer, expire_ms, stores=False)  # a promoter has just put it into Redis
        return word if placed.rows else "waits"

    def _near_step(self, queue: str, chain: str, offer: Offer, expire_ms: int, placed: Placed) -> str:
        looks = bool(placed.rows) or self._may_wait(offer)
        own = _position(as_bytes(offer.body))
        if looks and any(row.state == WAITING and _position(row.body) >= own for row in self._rows(chain, offer)):
            word = self._redis.step(queue, chain, offer, expire_ms, stores=False)
            word = "cancelled" if word == "cancelled" else "waits"
        else:
            word = self._redis.step(queue, chain, offer, expire_ms)
        if word in ("cancelled", "waits"):
            self._placement.take_back(placed)
        if looks and word == "cancelled":
            self._remove(self._rows(chain, offer))
        elif looks and word != "waits":
            rows = [row for row in self._rows(chain, offer) if row.body != as_bytes(offer.body)]
            if self._remove([row for row in rows if _position(row.body) <= own]):
                self._redis.step(queue, chain, offer, expire_ms, stores=False)
        return word

    def _may_wait(self, offer: Offer) -> bool:
        """Whether an earlier step of the chain may wait still: Redis knows when the latest one is due."""
        due_ms = self._client.ask("ZSCORE", self._client.keys.chains, offer.id)
        return due_ms is not None and float(due_ms) > time() * 1000

    def _rows(self, chain: str, offer: Offer) -> list[Row]:
        """Returns the rows of a chain, in any state."""
        return [row for row in self._journal.get([as_text(offer.id)], state=None) if as_bytes(chain) in row.body]

    def _remove(self, rows: Sequence[Row]) -> bool:
        """Deletes rows. Returns whether a promoter has put one of those that waited into Redis meanwhile."""
        gone = self._journal.delete_rows([row.seq for row in rows], state=None) if rows else []
        waiting = [row for row in gone if row.state == WAITING]
        return bool(waiting) and "pushed" in self._promotion.claim_rows(waiting).values()


def _position(body: bytes) -> int:
    """Returns the number of a message's step in its chain."""
    retries = headers_of(read(body)).get("retries")
    return retries if isinstance(retries, int) else 0
