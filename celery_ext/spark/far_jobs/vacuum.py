"""Removes what nobody needs from the far tier."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from time import time

from celery_ext.spark.far.filesystem import Found
from celery_ext.spark.far.manifest import Manifest, manifest_path, units_of
from celery_ext.spark.far.tier import FarTier, Marks

#: How long after its last file a run may still be at work, in s.
ORPHAN_S = 86_400.0
#: For how long a job is remembered that is promoted as a whole, in s.
REMEMBERED_S = 30 * 86_400.0


@dataclass(frozen=True)
class Vacuumed:
    """What was removed.

    Attributes:
        orphans: Number of files that no manifest names: of attempts and runs that failed or were killed.
        promoted: Number of files whose rows are in Redis.
        tombstones: Number of files with tombstones of hours that are promoted.
        manifests: Number of manifests whose rows are all in Redis; their jobs are forgotten.
    """

    orphans: int = 0
    promoted: int = 0
    tombstones: int = 0
    manifests: int = 0


def vacuum(path: str, orphans_after: float = ORPHAN_S, forget_after: float = REMEMBERED_S) -> Vacuumed:
    """Removes files that nobody needs. It may run at any time, beside writers and promotions.

    Args:
        path: URL or path of the far tier, as of the option ``far``.
        orphans_after: Files of a run that no manifest names are removed if the run wrote its last one longer ago, in s.
            A job that takes longer from one file to its end loses its rows; less than a day is refused.
        forget_after: A job whose rows are all promoted is forgotten this long after its manifest was written, in s. A
            run with its name then writes all rows anew.

    Raises:
        ValueError: ``orphans_after`` is less than a day.
        FarTierUnavailable: The files cannot be read.
    """
    if orphans_after < ORPHAN_S:
        raise ValueError(f"orphans_after={orphans_after:g} is less than a day, and would remove files of running jobs")
    return _Vacuum(FarTier.of(path), time() - orphans_after, time() - forget_after).run()


class _Vacuum:
    """One call of ``vacuum``.

    Args:
        tier: The tier.
        orphans_s: Files of runs that wrote later are kept, s since the epoch.
        forget_s: Manifests that were written later are kept, s since the epoch.
    """

    def __init__(self, tier: FarTier, orphans_s: float, forget_s: float) -> None:
        self._files = tier.files
        self._tier = tier
        self._orphans_s = orphans_s
        self._forget_s = forget_s

    def run(self) -> Vacuumed:
        """Removes files."""
        # What a listing has later than the manifests cannot be old and unnamed: its run is still at work.
        data = [*self._files.list("data"), *self._files.list("prepared")]
        tombstones = self._files.list("tombstones")
        written = {found.path: found.modified_s for found in self._files.list("manifests")}
        manifests = self._tier.manifests()
        marks = self._tier.marks()
        named = {file.path for manifest in manifests for file in manifest.files}
        orphans = self._orphans([found for found in data if found.path not in named])
        promoted = [
            file.path
            for manifest in manifests
            for unit in units_of(manifest)
            if (unit.hour, manifest.id) in marks.done
            for file in unit.files
        ]
        there = {found.path for found in data}
        promoted = [path for path in promoted if path in there]
        buried = self._buried(tombstones, manifests, marks)
        forgotten = self._forgotten(manifests, marks, written)
        self._files.delete([*orphans, *promoted, *buried])
        # The manifests go before their marks: without the marks, the rows would be promoted again.
        self._files.delete([manifest_path(manifest.job) for manifest in forgotten])
        self._forget_marks(manifests, forgotten)
        for folder in {path.rpartition("/")[0] for path in (*orphans, *promoted, *buried)}:
            self._files.remove_empty_folder(folder)
        return Vacuumed(len(orphans), len(promoted), len(buried), len(forgotten))

    def _orphans(self, unnamed: Sequence[Found]) -> list[str]:
        """Returns files of runs that have written nothing for long."""
        runs: defaultdict[str, list[Found]] = defaultdict(list)
        for found in unnamed:
            job, run = found.path.rpartition("/")[2].partition(".")[0].split("-")[:2]
            runs[f"{job}-{run}"].append(found)
        old = [files for files in runs.values() if max(file.modified_s for file in files) < self._orphans_s]
        return [file.path for files in old for file in files]

    def _buried(self, tombstones: Sequence[Found], manifests: Sequence[Manifest], marks: Marks) -> list[str]:
        """Returns old files with tombstones of hours in which nothing is left to promote."""
        waiting = {
            unit.hour
            for manifest in manifests
            for unit in units_of(manifest)
            if (unit.hour, manifest.id) not in marks.done
        }
        return [
            found.path
            for found in tombstones
            if found.path.split("/")[1] not in waiting and found.modified_s < self._orphans_s
        ]

    def _forgotten(self, manifests: Sequence[Manifest], marks: Marks, written: dict[str, float]) -> list[Manifest]:
        return [
            manifest
            for manifest in manifests
            if written.get(manifest_path(manifest.job), self._forget_s) < self._forget_s
            and all((unit.hour, manifest.id) in marks.done for unit in units_of(manifest))
        ]

    def _forget_marks(self, manifests: Sequence[Manifest], forgotten: Sequence[Manifest]) -> None:
        """Removes old files of marks that name no manifest that is left."""
        left = {manifest.id for manifest in manifests} - {manifest.id for manifest in forgotten}
        old = [found.path for found in self._files.list("marks") if found.modified_s < self._orphans_s]
        self._files.delete(path for path in old if left.isdisjoint(self._tier.marked(path)))
