"""The far tier of tests: what is in its files, and rows that are written to it without Spark."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from celery_ext.spark.far.ids import ids_of
from celery_ext.spark.far.manifest import Manifest, manifest_path
from celery_ext.spark.far.rows import offers_of
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far.writer import FarWriter
from kombu_delayq.store.types import Offer
from tests.support.spark.making import batch_of, builder_of

#: When the jobs of these tests began, ms since the epoch.
BASE_MS = 2e12
#: The first hour in which their rows are due.
HOUR = "2033-05-19T04"
HOUR_MS = 3_600_000


def commit(path: Path, ids: Sequence[str], hours: int = 1, job: str = "j", base_ms: float = BASE_MS) -> Manifest:
    """Writes rows as a committed job has them, the first due in the first hour, the next in the next.

    Args:
        path: The far tier.
        ids: Task ids.
        hours: Number of hours.
        job: Name of the job.
        base_ms: When the job began, ms since the epoch. Rows are due in the hour after the next day's.
    """
    start = (int(base_ms) + 86_400_000) // HOUR_MS * HOUR_MS + HOUR_MS
    etas = [(start + HOUR_MS * (n % hours) + n) * 1000 for n in range(len(ids))]
    batch = batch_of(task_id=list(ids), n=list(range(len(ids))), eta=pa.array(etas, pa.timestamp("us", "UTC")))
    late = builder_of(batch.schema, queue="q", task="t", base_ms=base_ms).split(batch, 0)[1].rows
    assert late is not None
    tier = FarTier.of(str(path))
    writer = FarWriter(tier.files, job, 1, uuid4().hex[:12], base_ms)
    writer.add(*late)
    manifest = Manifest(str(uuid4()), job, 1, base_ms, 86_400_000, tuple(writer.close()))
    tier.files.put(manifest_path(job), manifest.to_json())
    return manifest


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


def files_of(path: Path, folder: str) -> list[str]:
    """Returns the files in a folder of a tier."""
    return [found.path for found in FarTier.of(str(path)).files.list(folder)]
