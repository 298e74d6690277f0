"""Cancels tasks that wait in the far tier or in Redis, and tells the truth about each."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.far.ids import id_columns, id_texts
from celery_ext.spark.far.manifest import DataFile, Unit
from celery_ext.spark.far.schema import TOMBSTONE_SCHEMA
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far_jobs.promote import KEPT_MS
from celery_ext.spark.options import BrokerOptions
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.app_settings import AppSettings
from celery_ext.waiting import by_id
from kombu_delayq.message.pages import pages
from kombu_delayq.store import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What became of a task, as of ``celery_ext.cancel``.
Outcome = Literal["cancelled", "chain_ended", "not_delayed"]

#: How many files are searched at the same time.
_AT_ONCE = 8
#: How long a call waits for the broker, in s.
_TIMEOUT_S = 60.0


def cancel(path: str, ids: Iterable[str] | DataFrame, **options: Any) -> dict[str, Outcome]:
    """Cancels tasks by id, in the far tier and in Redis.

    The answer is true also while a promotion runs: a task that is ``cancelled`` never runs.

    Args:
        path: URL or path of the far tier, as of the option ``far``.
        ids: Task ids; or a DataFrame whose only column has them, which is collected to the driver.
        **options: Options of the data source that name the broker.

    Returns:
        A word for each id: ``cancelled``; ``chain_ended``, if only the further steps of its delay chain are; or
        ``not_delayed``, if the task waited nowhere.

    Raises:
        InvalidSparkOption: An option is wrong, or the DataFrame has other columns.
        BrokerUnavailable: The broker does not answer.
        FarTierUnavailable: The files cannot be read.
        AnswerLost: Redis did not answer while it cancelled tasks.
    """
    wanted = BrokerOptions.parse({name: str(value) for name, value in options.items() if value is not None})
    tier = FarTier.of(path)
    broker = AppSettings.of(wanted.celery_app).broker_of(wanted)
    texts = list(dict.fromkeys(_listed(ids)))
    store = Retry(_TIMEOUT_S).until_done(broker.connect)
    try:
        return cancel_in(tier, store, texts)
    finally:
        store.close()


def cancel_in(tier: FarTier, store: SparkStore, ids: Sequence[str]) -> dict[str, Outcome]:
    """Cancels tasks as ``cancel`` does. ids: Without duplicates."""
    outcomes: dict[str, Outcome] = dict.fromkeys(ids, "not_delayed")
    cancelled = _cancel_rows(tier, store, ids)
    # Redis is asked last: a row that was promoted meanwhile is there by now.
    for result in by_id.cancel(store, ids):
        if result.outcome != "not_delayed":
            outcomes[result.id] = result.outcome  # type: ignore[assignment]  # one of these words
    outcomes.update(dict.fromkeys(cancelled, "cancelled"))
    return outcomes


class _Hit(NamedTuple):
    """Ids that a file of a unit has."""

    unit: Unit
    ids: list[str]


def _cancel_rows(tier: FarTier, store: SparkStore, ids: Sequence[str]) -> set[str]:
    """Cancels rows of the far tier, and returns the ids of those that no promotion has sent, nor will."""
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
    for unit, found_ids in hits:
        key = (unit.hour, unit.manifest.id)
        if key in marks.done:
            continue
        if key not in marks.begun:
            cancelled.update(found_ids)
            continue
        for part in pages(found_ids, by_id.IDS_A_CALL):
            free = store.jobs.withhold(unit.job, KEPT_MS, part)
            if free is not None:
                cancelled.update(task_id for task_id, is_free in zip(part, free, strict=True) if is_free)
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
        uuids, others = id_columns(ids)
        uuids = uuids.drop_null()
        return cls(sorted(uuids.to_pylist()), uuids, others.drop_null())

    def of_file(self, tier: FarTier, file: DataFile) -> list[str]:
        """Returns the ids that a file has, each once; none if the file is gone, because its rows were promoted."""
        try:
            with tier.files.open(file.path) as source, pq.ParquetFile(source) as opened:
                groups = [at for at in range(opened.num_row_groups) if self._may_be_in(opened.metadata.row_group(at))]
                if not groups:
                    return []
                rows = opened.read_row_groups(groups, columns=["uuid", "id"])
        except FileNotFoundError:
            return []
        here = pc.or_(pc.is_in(rows["uuid"], value_set=self.uuid_set), pc.is_in(rows["id"], value_set=self.others))
        texts: list[str] = pc.unique(id_texts(rows.filter(here))).to_pylist()
        return texts

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


def _listed(ids: Iterable[str] | DataFrame) -> list[str]:
    if isinstance(ids, str):
        raise InvalidSparkOption("ids is a text; give a list of task ids, or a DataFrame of them")
    if isinstance(ids, Iterable):
        return list(ids)
    if len(ids.columns) != 1:
        raise InvalidSparkOption(f"the DataFrame of ids has {len(ids.columns)} columns; select the task ids only")
    return [str(row[0]) for row in ids.collect() if row[0] is not None]
