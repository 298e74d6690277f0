"""A far tier: its manifests, what is promoted, and its rows."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from celery_ext.spark.errors import FarTierUnavailable
from celery_ext.spark.far.filesystem import Files, check
from celery_ext.spark.far.manifest import DataFile, Manifest, Unit, manifest_path, units_of
from celery_ext.spark.far.schema import TOMBSTONE_SCHEMA
from celery_ext.spark.far.tombstones import Tombstones


@dataclass(frozen=True)
class Marks:
    """What promotions have noted.

    Attributes:
        begun: Hours and ids of manifests whose promotion has begun.
        done: Those whose promotion is complete.
    """

    begun: frozenset[tuple[str, str]]
    done: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class FarTier:
    """The far tier below a URL.

    Attributes:
        files: Its files.
    """

    files: Files

    @classmethod
    def of(cls, url: str) -> FarTier:
        """Returns the tier below a URL. Reads nothing.

        Raises:
            InvalidSparkOption: There is no such file system, or the URL has a password.
        """
        return cls(check(url))

    def manifest(self, job: str) -> Manifest | None:
        """Returns the manifest of a job; None while it is not committed here."""
        path = manifest_path(job)
        content = self.files.read(path)
        return None if content is None else _parsed(path, content)

    def manifests(self) -> list[Manifest]:
        """Returns the manifests of all committed jobs."""
        paths = [found.path for found in self.files.list("manifests")]
        contents = zip(paths, self.files.read_all(paths), strict=True)
        return [_parsed(path, content) for path, content in contents if content is not None]

    def units(self, manifests: Sequence[Manifest] | None = None) -> list[Unit]:
        """Returns the units that are not promoted, the earliest hour first.

        Args:
            manifests: Those to look at; None for all.
        """
        manifests = self.manifests() if manifests is None else manifests  # before the marks: these come later
        marks = self.marks()
        units = [unit for manifest in manifests for unit in units_of(manifest)]
        waiting = [unit for unit in units if (unit.hour, unit.manifest.id) not in marks.done]
        begun = [replace(unit, is_begun=(unit.hour, unit.manifest.id) in marks.begun) for unit in waiting]
        return sorted(begun, key=lambda unit: (unit.hour, unit.manifest.id))

    def marks(self, hours: Iterable[str] | None = None) -> Marks:
        """Returns what promotions have noted. hours: Those to look at; None for all."""
        folders = ["marks"] if hours is None else [f"marks/{hour}" for hour in hours]
        paths = [found.path for folder in folders for found in self.files.list(folder)]
        noted: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for path, content in zip(paths, self.files.read_all(paths), strict=True):
            _, hour, name = path.split("/")
            state = name.split(".")[-2]
            noted[state].update(
                (hour, manifest) for manifest in json.loads(content or b'{"manifests": []}')["manifests"]
            )
        return Marks(frozenset(noted["begun"]), frozenset(noted["done"]))

    def marked(self, path: str) -> Sequence[str]:
        """Returns the ids of the manifests that a file of marks names."""
        return _manifests_in(self.files.read(path))

    def mark(self, state: str, units: Iterable[Unit]) -> None:
        """Notes that the promotion of units has begun or is done. state: ``begun`` or ``done``."""
        by_hour: defaultdict[str, list[str]] = defaultdict(list)
        for unit in units:
            by_hour[unit.hour].append(unit.manifest.id)
        for hour, manifests in by_hour.items():
            self.files.put(f"marks/{hour}/{uuid4()}.{state}.json", json.dumps({"manifests": manifests}).encode())

    def tombstones(self, hour: str) -> Tombstones:
        """Returns which rows of an hour are cancelled."""
        tables = []
        for found in self.files.list(f"tombstones/{hour}"):
            content = self.files.read(found.path)
            if content is not None:
                tables.append(pq.read_table(pa.BufferReader(content)))
        return Tombstones.of(pa.concat_tables([TOMBSTONE_SCHEMA.empty_table(), *tables]))

    def bury(self, hour: str, rows: pa.Table) -> None:
        """Cancels rows of an hour. rows: As ``TOMBSTONE_SCHEMA``."""
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        self.files.put(f"tombstones/{hour}/{uuid4()}.parquet", sink.getvalue().to_pybytes())

    def table(
        self, file: DataFile, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> pa.Table | None:
        """Returns rows of a file; None if it is gone, because its rows were promoted meanwhile.

        Args:
            file: The file.
            columns: Names of columns; None for all.
            groups: Numbers of row groups; None for all.
        """
        try:
            with self.files.open(file.path) as source, pq.ParquetFile(source) as opened:
                wanted = range(opened.num_row_groups) if groups is None else groups
                return opened.read_row_groups(list(wanted), columns=None if columns is None else list(columns))
        except FileNotFoundError:
            return None


def _manifests_in(mark: bytes | None) -> Sequence[str]:
    """Returns the ids of manifests in a mark; none if it was removed meanwhile."""
    return () if mark is None else json.loads(mark)["manifests"]


def _parsed(path: str, content: bytes) -> Manifest:
    try:
        return Manifest.parse(content)
    except (ValueError, KeyError, TypeError) as error:
        raise FarTierUnavailable(f"the manifest {path} of the far tier cannot be read: {error!r}") from error
