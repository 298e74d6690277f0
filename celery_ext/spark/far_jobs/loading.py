"""Loads rows of the far tier into Redis, in a Spark task."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import pyarrow.compute as pc

from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import FarTierUnavailable
from celery_ext.spark.far.manifest import DataFile, Unit
from celery_ext.spark.far.rows import offers_of
from celery_ext.spark.far.schema import GROUP_ROWS
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far.tombstones import Tombstones
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import no_garbage_collection
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.sender import JobCommitted, Sender, refused
from kombu_delayq.store import SparkStore
from kombu_delayq.store.job_types import JobRun

#: Rows of a file that are read at once.
_PIECE_ROWS = 4 * GROUP_ROWS
#: Rows whose messages are made at once.
_PART_ROWS = 5_000


class Piece(NamedTuple):
    """Rows that are loaded together: a file, or some row groups of a large file.

    Attributes:
        hour: The hour in which they are due.
        manifest: Id of their manifest.
        job: Name of the bulk job that promotes them.
        file: The file.
        groups: Numbers of the row groups.
        rows: Number of rows.
    """

    hour: str
    manifest: str
    job: str
    file: DataFile
    groups: range
    rows: int

    @classmethod
    def of(cls, unit: Unit) -> Iterator[Piece]:
        """Yields the pieces of a unit."""
        for file in unit.files:
            for start in range(0, file.rows, _PIECE_ROWS):
                end = min(start + _PIECE_ROWS, file.rows)
                groups = range(start // GROUP_ROWS, -(-end // GROUP_ROWS))
                yield cls(unit.hour, unit.manifest.id, unit.job, file, groups, end - start)


class Loaded(NamedTuple):
    """How many rows were sent, were repeated, and have tombstones; as of ``Promoted``."""

    sent: int
    repeated: int
    cancelled: int


@dataclass(frozen=True)
class Loader:
    """Loads rows. Pickled to executors, without a password.

    Attributes:
        tier: The tier.
        broker: The broker.
        options: Sizes of chunks, limits, and how long to wait.
        run: Number of the run of all bulk jobs.
        kept_ms: For how long Redis remembers the jobs, in ms.
    """

    tier: FarTier
    broker: Broker
    options: WriteOptions
    run: int
    kept_ms: int

    def task(self, parts: Sequence[Sequence[Piece]]) -> Callable[[int], Loaded]:
        """Returns a function that loads the part with a number. Spark calls it in its tasks."""
        return lambda number: self.load(parts[number])

    def load(self, pieces: Sequence[Piece]) -> Loaded:
        """Sends the rows of pieces to Redis, each id once for its unit.

        Raises:
            StragglerRefused: A later promotion has taken over.
            BrokerUnavailable: The broker takes no messages for longer than ``write_timeout``.
        """
        retry = Retry(self.options.write_timeout)
        store = retry.until_done(self.broker.connect)
        tombstones: dict[str, Tombstones] = {}
        sent = repeated = cancelled = 0
        try:
            for job, of_job in groupby(pieces, key=lambda piece: piece.job):
                run = JobRun(job, self.run, self.kept_ms, False, self.options.max_rate, self.options.max_queue_depth)
                word = retry.until_done(lambda run=run: store.jobs.begin(run)).word  # type: ignore[misc]
                if word == "committed":
                    continue
                if word != "open":
                    raise refused(job, word)
                with closing(Sender(store, run, self.options)) as sender, no_garbage_collection():
                    try:
                        for piece in of_job:
                            if piece.hour not in tombstones:
                                tombstones[piece.hour] = self.tier.tombstones(piece.hour)
                            cancelled += self._send(store, sender, piece, tombstones[piece.hour])
                        sender.flush()
                    except JobCommitted:
                        pass  # another attempt of this task has sent all of its rows
                    sent += sender.enqueued
                    repeated += sender.repeated
        finally:
            store.close()
        return Loaded(sent, repeated, cancelled)

    def _send(self, store: SparkStore, sender: Sender, piece: Piece, tombstones: Tombstones) -> int:
        """Sends the rows of a piece, and returns the number of those with tombstones."""
        rows = self.tier.table(piece.file, groups=piece.groups)
        if rows is None:
            found = store.jobs.find(piece.job)
            if found is not None and found.state == "committed":
                raise JobCommitted(piece.job)
            raise FarTierUnavailable(f"the file {piece.file.path} of the far tier is missing")
        live = tombstones.live(rows, piece.manifest)
        kept = rows if live is None else rows.filter(live)
        kept = kept.take(pc.sort_indices(kept["due"]))  # Redis stores messages faster in that order
        for start in range(0, len(kept), _PART_ROWS):
            for queue, offers in offers_of(kept.slice(start, _PART_ROWS), piece.manifest).items():
                sender.add(queue, offers)
        return len(rows) - len(kept)
