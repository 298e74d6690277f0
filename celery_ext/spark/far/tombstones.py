"""Which rows of an hour are cancelled."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.far.ids import id_texts


@dataclass(frozen=True)
class Tombstones:
    """Cancelled rows of one hour.

    Attributes:
        ids: Task ids, by id of the manifest.
    """

    ids: Mapping[str, pa.Array]

    @classmethod
    def of(cls, rows: pa.Table) -> Tombstones:
        """Returns the tombstones that are rows of ``TOMBSTONE_SCHEMA``."""
        manifests = pc.unique(rows["manifest"]).to_pylist()
        return cls({name: rows.filter(pc.equal(rows["manifest"], name))["id"].combine_chunks() for name in manifests})

    def live(self, rows: pa.Table, manifest: str) -> pa.Array | None:
        """Returns for each row of a manifest whether it is not cancelled; None when none is.

        Args:
            rows: Rows with the columns ``uuid`` and ``id``.
            manifest: Id of the manifest.
        """
        cancelled = self.ids.get(manifest)
        if cancelled is None:
            return None
        return pc.invert(pc.is_in(id_texts(rows), value_set=cancelled))
