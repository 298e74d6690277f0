"""Loads rows of the far tier into Redis before they are due."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import udf

from celery_ext.spark.errors import StragglerRefused
from celery_ext.spark.far.manifest import PROMOTION_MS, Unit, hour_us
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far_jobs.loading import Loaded, Loader, Piece
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.app_settings import AppSettings
from kombu_delayq.message.times import us_of
from kombu_delayq.store import SparkStore
from kombu_delayq.store.job_types import JobRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows that are due within this time are near, in s: a promotion each hour has an hour to spare.
LEAD_S = 2 * 3600.0
#: Rows that one Spark job loads, and those of one of its tasks.
_ROUND_ROWS, _TASK_ROWS = 1_000_000, 100_000


@dataclass(frozen=True)
class Promoted:
    """What a promotion has done.

    Attributes:
        hours: Due hours whose rows are all in Redis now, such as ``2026-11-22T22``, in UTC.
        rows: Number of their rows.
        sent: Number of messages sent to Redis.
        repeated: Number of rows that Redis had before: from an attempt that failed, or a second row of an id; or that
            were cancelled meanwhile.
        cancelled: Number of rows with a tombstone.
        files: Number of files removed.
    """

    hours: tuple[str, ...] = ()
    rows: int = 0
    sent: int = 0
    repeated: int = 0
    cancelled: int = 0
    files: int = 0


def promote(spark: SparkSession, path: str, before: datetime | None = None, **options: Any) -> Promoted:
    """Loads the hours of the far tier that are near into Redis, each row once, and removes their files.

    A promotion that was killed is completed by the next one. Of two that run at the same time, one goes on.

    Args:
        spark: The session.
        path: URL or path of the far tier, as of the option ``far``.
        before: Hours that begin before this time are near; without a zone it is in UTC. Default: two hours from now, by
            Redis's clock.
        **options: Options of the data source: those of the broker, and ``max_rate``, ``max_queue_depth``,
            ``chunk_size``, ``chunk_bytes`` and ``write_timeout``.

    Raises:
        InvalidSparkOption: An option is wrong.
        BrokerUnavailable: The broker does not answer.
        FarTierUnavailable: The files cannot be read.
        StragglerRefused: A later promotion has taken over.
    """
    wanted = WriteOptions.parse({name: str(value) for name, value in options.items() if value is not None})
    tier = FarTier.of(path)
    broker = AppSettings.of(wanted.celery_app).broker_of(wanted)
    retry = Retry(wanted.write_timeout)
    store = retry.until_done(broker.connect)
    try:
        store.check_version()
        now_us = store.now_ms() * 1000
        before_us = round(now_us + LEAD_S * 1e6) if before is None else us_of(before)
        units = [unit for unit in tier.units() if hour_us(unit.hour) < before_us]
        loader = Loader(tier, broker, wanted, retry.until_done(store.jobs.new_run), PROMOTION_MS)
        return _Promotion(spark, tier, store, loader, retry).of(units)
    finally:
        store.close()


class _Promotion:
    """One promotion.

    Args:
        spark: The session.
        tier: The tier.
        store: Store of the broker.
        loader: Loads rows, in Spark tasks.
        retry: Tries again while the broker does not answer.
    """

    def __init__(self, spark: SparkSession, tier: FarTier, store: SparkStore, loader: Loader, retry: Retry) -> None:
        self._spark = spark
        self._tier = tier
        self._store = store
        self._loader = loader
        self._retry = retry

    def of(self, units: Sequence[Unit]) -> Promoted:
        """Promotes units, the earliest hour first."""
        rows = sum(unit.rows for unit in units)
        done = Promoted()
        for part in _rounds(units):
            done = self._promote(part, done)
            log(logging.INFO, f"promoted {done.rows:,} of {rows:,} rows to Redis, up to the hour {part[-1].hour}")
        return done

    def _promote(self, units: Sequence[Unit], before: Promoted) -> Promoted:
        # A cancel that comes later than this mark claims its ids in Redis; the tombstones of earlier ones are read now.
        self._tier.mark("begun", [unit for unit in units if not unit.is_begun])
        loaded = self._load(units)
        for unit in units:
            self._commit(unit)
        self._tier.mark("done", units)
        paths = [file.path for unit in units for file in unit.files]
        self._tier.files.delete(paths)
        return Promoted(
            tuple(dict.fromkeys((*before.hours, *(unit.hour for unit in units)))),
            before.rows + sum(unit.rows for unit in units),
            before.sent + loaded.sent,
            before.repeated + loaded.repeated,
            before.cancelled + loaded.cancelled,
            before.files + len(paths),
        )

    def _load(self, units: Sequence[Unit]) -> Loaded:
        """Loads the rows of units in the tasks of one Spark job."""
        parts = list(_tasks(units))
        # Spark would fold a deterministic function, or call it twice. The plain form needs no pandas.
        load = udf(self._loader.task(parts), "sent long, repeated long, cancelled long", useArrow=False)
        rows = self._spark.range(0, len(parts), 1, max(len(parts), 1))
        found = rows.select(load.asNondeterministic()("id").alias("loaded")).collect()
        return Loaded(*(sum(row.loaded[name] for row in found) for name in Loaded._fields))

    def _commit(self, unit: Unit) -> None:
        job = JobRun(unit.job, self._loader.run, PROMOTION_MS)
        word = self._retry.until_done(lambda: self._store.jobs.finish(job, "committed"))
        if word != "committed":
            raise StragglerRefused(f"the promotion of {unit.hour} is {word}; the later one goes on with it")


def _rounds(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Yields units that one Spark job loads."""
    part: list[Unit] = []
    rows = 0
    for unit in units:
        if part and rows + unit.rows > _ROUND_ROWS:
            yield part
            part, rows = [], 0
        part.append(unit)
        rows += unit.rows
    if part:
        yield part


def _tasks(units: Sequence[Unit]) -> Iterator[list[Piece]]:
    """Yields the pieces that one Spark task loads."""
    task: list[Piece] = []
    rows = 0
    for piece in (piece for unit in units for piece in Piece.of(unit)):
        task.append(piece)
        rows += piece.rows
        if rows >= _TASK_ROWS:
            yield task
            task, rows = [], 0
    if task:
        yield task
