"""Cancels rows of the far tier, also while a promotion runs."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from celery_ext.spark.far.ids import id_columns, id_texts
from celery_ext.spark.far.manifest import PROMOTION_MS, DataFile, Unit
from celery_ext.spark.far.schema import TOMBSTONE_SCHEMA
from celery_ext.spark.far.tier import FarTier
from celery_ext.waiting.by_id import IDS_A_CALL
from kombu_delayq.message.pages import pages
from kombu_delayq.store import SparkStore

#: How many files are searched at the same time.
_AT_ONCE = 8


class _Hit(NamedTuple):
    """Rows that a file of a unit has: queue and id of each."""

    unit: Unit
    rows: list[tuple[str, str]]

    @property
    def ids(self) -> list[str]:
        return list(dict.fromkeys(task_id for _, task_id in self.rows))


def cancel_rows(tier: FarTier, store: SparkStore, ids: Sequence[str]) -> set[str]:
    """Cancels rows of the far tier, and returns the ids of those that no promotion has sent, nor will.

    Other ids may be in Redis by now.

    Args:
        tier: The tier.
        store: Store of the broker to which rows are promoted.
        ids: Task ids, without duplicates.
    """
    hits = _search(tier, ids)
    by_hour: defaultdict[str, list[_Hit]] = defaultdict(list)
    for hit in hits:
        by_hour[hit.unit.hour].append(hit)
    for hour, found in by_hour.items():
        columns = [
            [hit.unit.manifest.id for hit in found for _ in hit.ids],
            [task_id for hit in found for task_id in hit.ids],
        ]
        tier.bury(hour, pa.table(columns, TOMBSTONE_SCHEMA))
    # A promotion notes that it begins, and then reads the tombstones. So one that is not noted by now heeds them.
    marks = tier.marks(by_hour)
    cancelled: set[str] = set()
    for hit in hits:
        unit = hit.unit
        key = (unit.hour, unit.manifest.id)
        if key in marks.done:
            continue
        if key not in marks.begun:
            cancelled.update(hit.ids)
            continue
        for part in pages(hit.rows, IDS_A_CALL):
            free = store.jobs.claim_ids(unit.job, PROMOTION_MS, part)
            if free is not None:
                cancelled.update(task_id for (_, task_id), is_free in zip(part, free, strict=True) if is_free)
    return cancelled


def _search(tier: FarTier, ids: Sequence[str]) -> list[_Hit]:
    """Returns which units have some of the ids."""
    wanted = _Wanted.of(ids)
    units = tier.units()
    files = [(unit, file) for unit in units for file in unit.files]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda pair: wanted.of_file(tier, pair[1]), files)
        return [_Hit(unit, texts) for (unit, _), texts in zip(files, found, strict=True) if texts]


class _Wanted(NamedTuple):
    """The ids that are searched for.

    Attributes:
        uuids: Those that are UUIDs, as bytes, in order.
        uuid_set: The same as an array.
        others: The others.
    """

    uuids: Sequence[bytes]
    uuid_set: pa.Array
    others: pa.Array

    @classmethod
    def of(cls, ids: Sequence[str]) -> _Wanted:
        """Returns what is searched for. ids: Task ids."""
        uuids, others = id_columns(ids)
        uuids = uuids.drop_null()
        return cls(sorted(uuids.to_pylist()), uuids, others.drop_null())

    def of_file(self, tier: FarTier, file: DataFile) -> list[tuple[str, str]]:
        """Returns queue and id of the rows that a file has, each once; none if its rows were promoted."""
        try:
            with tier.files.open(file.path) as source, pq.ParquetFile(source) as opened:
                groups = [at for at in range(opened.num_row_groups) if self._may_be_in(opened.metadata.row_group(at))]
                if not groups:
                    return []
                rows = opened.read_row_groups(groups, columns=["uuid", "id", "queue"])
        except FileNotFoundError:
            return []
        here = pc.or_(pc.is_in(rows["uuid"], value_set=self.uuid_set), pc.is_in(rows["id"], value_set=self.others))
        rows = rows.filter(here)
        return list(dict.fromkeys(zip(rows["queue"].to_pylist(), id_texts(rows).to_pylist(), strict=True)))

    def _may_be_in(self, group: pq.RowGroupMetaData) -> bool:
        """Whether a row group may have some of the ids. Rows are sorted by id."""
        columns: Mapping[str, Any] = {column.path_in_schema: column.statistics for column in map(group.column, (0, 1))}
        uuids, others = columns["uuid"], columns["id"]
        if uuids is None or others is None or (len(self.others) and others.num_values):
            return True
        if not uuids.has_min_max:
            return bool(uuids.num_values)
        first = bisect_left(self.uuids, uuids.min)
        return first < len(self.uuids) and self.uuids[first] <= uuids.max
