"""Which messages wait in Redis, and which in the journal."""

from collections.abc import Sequence
from time import time

from celery_ext.journal.table.rows import Addition
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.options import Options
from kombu_delayq.store.types import Offer


def due_ms_of(offer: Offer) -> float:
    """Returns when an offer is due, ms since the epoch; by this machine's clock if it counts from its arrival."""
    if offer.due.startswith("+"):
        return time() * 1000 + float(offer.due[1:])
    return float(offer.due or 0.0)


def is_far(offer: Offer, options: Options) -> bool:
    """Whether an offer is due later than the horizon, so that it waits in the journal."""
    return bool(offer.due) and due_ms_of(offer) - time() * 1000 > options.journal_horizon * 1000


def additions_of(queue: str, offers: Sequence[Offer], expire_ms: int) -> list[Addition]:
    """Returns offers in the form that the journal takes."""
    return [
        Addition(queue, as_text(one.id), due_ms_of(one), one.priority, as_bytes(one.body), expire_ms) for one in offers
    ]
