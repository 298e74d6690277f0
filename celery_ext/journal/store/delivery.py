"""Publishing into Redis, into the journal, or into both."""

from celery_ext.journal.store.tiers import additions_of, is_far
from celery_ext.journal.table import Journal
from kombu_delayq.store.client import QueueRegistry, StoreClient
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.types import Offer, Offered


class JournaledDelivery(Delivery):
    """Takes messages in: those that are due late go to the journal, the others to Redis.

    Args:
        client: As of ``Delivery``.
        registry: As of ``Delivery``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry, journal: Journal) -> None:
        super().__init__(client, registry)
        self._journal = journal

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Stores messages until they are due, each where it belongs; see ``Delivery.offer``."""
        options = self._client.options
        far = [one for one in offers if is_far(one, options)]
        near = [one for one in offers if not is_far(one, options)]
        made = self._journal.add(additions_of(queue, far, expire_ms))
        if options.journal == "all":
            self._journal.add(additions_of(queue, near, expire_ms), offered=True)
        offered = super().offer(queue, *near, expire_ms=expire_ms) if near else Offered("behind", 0, 0, 0)
        new = sum(seq is not None for seq in made)
        return offered._replace(offered=offered.offered + new, repeated=offered.repeated + len(far) - new)
