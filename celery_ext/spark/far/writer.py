"""Writes the rows of one Spark task to the far tier: Parquet files, each with rows of one hour."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from celery_ext.publish.template import Template
from celery_ext.spark.far.filesystem import Files
from celery_ext.spark.far.ids import order_of
from celery_ext.spark.far.manifest import DataFile, data_prefix, hour_of
from celery_ext.spark.far.schema import BASE, DICTIONARY, GROUP_ROWS, SCHEMA, TEMPLATES
from celery_ext.spark.far.templates import written

#: Rows that are collected before they are sorted by hour.
_SORTED_ROWS = 200_000
#: Bytes of rows in memory. Beyond it, files are written before the task has seen its last row.
_MOST_BYTES = 256_000_000
#: Fewest rows of a file that is written before the last row.
_FEW = 20_000


class FarWriter:
    """Writes rows. Nothing counts before a manifest names the files.

    Args:
        files: Files of the tier.
        job: Name of the job.
        run: Number of its run.
        attempt: Name of the attempt of the Spark task, which no other attempt has.
        base_ms: When the job began, ms since the epoch.
    """

    def __init__(self, files: Files, job: str, run: int, attempt: str, base_ms: float) -> None:
        self._files = files
        self._prefix = f"{data_prefix(job, run)}{attempt}"
        self._base_us = round(base_ms * 1000)
        self._templates: dict[Template, int] = {}
        self._unsorted: list[pa.Table] = []
        self._unsorted_rows = 0
        self._by_hour: defaultdict[str, list[pa.Table]] = defaultdict(list)
        self._bytes = 0
        self._written: list[DataFile] = []

    def add(self, rows: pa.Table, templates: Sequence[Template]) -> None:
        """Adds rows. templates: Those that the column ``template`` of these rows numbers."""
        numbers = [self._templates.setdefault(template, len(self._templates)) for template in templates]
        if numbers != list(range(len(templates))):
            column = pa.array(numbers, pa.int16()).take(rows["template"].combine_chunks())
            rows = rows.set_column(rows.schema.get_field_index("template"), SCHEMA.field("template"), column)
        self._unsorted.append(rows)
        self._unsorted_rows += len(rows)
        if self._unsorted_rows >= _SORTED_ROWS:
            self._sort()
            if self._bytes >= _MOST_BYTES:
                self._make_room()

    def close(self) -> list[DataFile]:
        """Writes the rest, and returns all files."""
        self._sort()
        for hour in sorted(self._by_hour):
            self._write(hour)
        return self._written

    def _sort(self) -> None:
        """Sorts the latest rows by hour."""
        if not self._unsorted:
            return
        rows = pa.concat_tables(self._unsorted).combine_chunks()
        self._unsorted, self._unsorted_rows = [], 0
        hours = pc.floor_temporal(rows["due"], unit="hour").cast(pa.int64())
        order = pc.sort_indices(hours)
        rows, hours = rows.take(order).combine_chunks(), hours.take(order)
        start = 0
        for run in pc.run_end_encode(hours.combine_chunks()).run_ends.to_pylist() if len(hours) else ():
            self._by_hour[hour_of(hours[start].as_py())].append(rows.slice(start, run - start))
            start = run
        self._bytes += rows.nbytes

    def _make_room(self) -> None:
        """Writes the hours with many rows, or all of them if this is not enough."""
        for few in (_FEW, 0):
            for hour in [hour for hour, parts in self._by_hour.items() if sum(map(len, parts)) >= few]:
                self._write(hour)
            if self._bytes < _MOST_BYTES // 2:
                return

    def _write(self, hour: str) -> None:
        parts = self._by_hour.pop(hour)
        self._bytes -= sum(part.nbytes for part in parts)
        rows = pa.concat_tables(parts).combine_chunks()
        rows = rows.take(order_of(rows))
        used = set(pc.unique(rows["template"]).to_pylist())
        templates = {number: template for template, number in self._templates.items() if number in used}
        rows = rows.replace_schema_metadata({TEMPLATES: written(templates), BASE: str(self._base_us)})
        path = f"data/hour={hour}/{self._prefix}-{len(self._written)}.parquet"
        with self._files.create(path) as sink:
            write_parquet(rows, sink)
            size = sink.tell()
        self._files.sync(path)
        due = pc.min_max(rows["due"].cast(pa.int64()))
        queues = tuple(sorted(pc.unique(rows["queue"]).to_pylist()))
        self._written.append(DataFile(path, hour, len(rows), size, due["min"].as_py(), due["max"].as_py(), queues))


def write_parquet(rows: pa.Table, sink: pa.NativeFile) -> None:
    """Writes rows as a Parquet file."""
    # As due times are not in order, their differences cost less than the times themselves.
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=9,
        use_dictionary=list(DICTIONARY),
        column_encoding={"due": "DELTA_BINARY_PACKED"},
        row_group_size=GROUP_ROWS,
    )
