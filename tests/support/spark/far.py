"""The far tier of tests: what is in its files, and jobs that write to it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from celery_ext.spark.far.ids import ids_of
from celery_ext.spark.far.rows import offers_of
from celery_ext.spark.far.tier import FarTier
from kombu_delayq.store.types import Offer


def waiting_ids(path: Path) -> Counter[str]:
    """Returns how often each id is in the rows that are neither promoted nor cancelled."""
    tier = FarTier.of(str(path))
    found: Counter[str] = Counter()
    for unit in tier.units():
        tombstones = tier.tombstones(unit.hour)
        for file in unit.files:
            rows = tier.table(file)
            assert rows is not None
            live = tombstones.live(rows, unit.manifest.id)
            found.update(ids_of(rows if live is None else rows.filter(live)))
    return found


def offers(path: Path) -> Iterator[tuple[str, Offer]]:
    """Yields the messages of all rows, with their queues."""
    tier = FarTier.of(str(path))
    for unit in tier.units():
        for file in unit.files:
            for queue, made in offers_of(tier.table(file), unit.manifest.id).items():
                yield from ((queue, offer) for offer in made)
