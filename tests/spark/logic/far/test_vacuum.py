"""``vacuum`` and the file system below a far tier: what may go, goes, and nothing else."""

import os
import pickle
from pathlib import Path
from time import time

import pyarrow as pa
import pytest

from celery_ext.spark import vacuum
from celery_ext.spark.errors import FarTierUnavailable, InvalidSparkOption
from celery_ext.spark.far.filesystem import Files
from celery_ext.spark.far.manifest import data_prefix, manifest_path, prepared_path
from celery_ext.spark.far.schema import TOMBSTONE_SCHEMA
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far_jobs.vacuum import Vacuumed
from tests.support.spark.far import commit, files_of, waiting_ids

IDS = [f"id {n}" for n in range(8)]
DAY_S = 86_400.0


def age(path: Path, days: float) -> None:
    """Makes a file, or all files in a folder, older."""
    for file in [path, *path.rglob("*")]:
        os.utime(file, (time() - days * DAY_S,) * 2)


def test_files_of_dead_runs_go_a_day_after_their_last(tmp_path: Path) -> None:
    """A run that has written a file within a day keeps all its files, however old; those of a manifest always stay."""
    commit(tmp_path, IDS)
    age(tmp_path / "data", 9)
    tier = FarTier.of(str(tmp_path))
    names = [f"data/hour=2040-01-01T00/{data_prefix(job, 3)}a{n}-0.parquet" for job in ("dead", "slow") for n in (0, 1)]
    for name in (*names, prepared_path("dead", 3)):
        tier.files.put(name, b"x")
        age(tmp_path / name, 9)
    os.utime(tmp_path / names[-1])
    assert vacuum(str(tmp_path)) == Vacuumed(orphans=3)
    assert [(tmp_path / name).exists() for name in names] == [False, False, True, True]
    assert waiting_ids(tmp_path).keys() == set(IDS)
    assert vacuum(str(tmp_path)) == Vacuumed()


def test_what_is_promoted_goes(tmp_path: Path) -> None:
    """Files that a killed promotion has left go at once, tombstones of their hours after a day, the rest after 30."""
    manifest, later = commit(tmp_path, IDS, hours=2), commit(tmp_path, IDS, hours=2, job="later")
    tier = FarTier.of(str(tmp_path))
    units = tier.units()
    tier.bury(units[0].hour, pa.table([[manifest.id], IDS[:1]], TOMBSTONE_SCHEMA))
    tier.mark("begun", units)
    tier.mark("done", [unit for unit in units if unit.manifest.id == manifest.id])
    assert vacuum(str(tmp_path)) == Vacuumed(promoted=2)
    age(tmp_path, 29)
    assert vacuum(str(tmp_path)) == Vacuumed()  # the hour of the tombstone has rows of the other job
    age(tmp_path, 31)
    assert vacuum(str(tmp_path)) == Vacuumed(manifests=1)
    assert [found.id for found in tier.manifests()] == [later.id]
    assert len(files_of(tmp_path, "marks")) == 2  # those that name the other job, too
    assert waiting_ids(tmp_path).keys() == set(IDS)
    tier.mark("done", tier.units())
    age(tmp_path, 31)
    assert vacuum(str(tmp_path)) == Vacuumed(promoted=2, tombstones=1, manifests=1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_running_jobs_are_safe(tmp_path: Path) -> None:
    """A time in which a job may still be at work is refused."""
    with pytest.raises(ValueError, match="is less than a day"):
        vacuum(str(tmp_path), orphans_after=3600)


def test_files(tmp_path: Path) -> None:
    """A file is replaced, read by another process, listed without half written ones, and removed."""
    files = Files(str(tmp_path))
    assert files.list("a") == []
    assert files.read("a/b") is None
    files.put("a/b/c", b"1")
    files.put("a/b/c", b"22")
    (tmp_path / "a" / ".half").write_bytes(b"")
    restored: Files = pickle.loads(pickle.dumps(files))
    assert restored.read("a/b/c") == b"22"
    [found] = files.list("a")
    assert (found.path, found.size) == ("a/b/c", 2)
    assert found.modified_s == pytest.approx(time(), abs=60)
    files.delete(["a/b/c", "a/b/gone"])
    assert files.list("a") == []
    with pytest.raises(FileNotFoundError):
        files.open("a/b/c")
    with pytest.raises(InvalidSparkOption, match="path of the far tier is empty"):
        FarTier.of(" ")


def test_a_manifest_that_is_none_is_named(tmp_path: Path) -> None:
    """What cannot be read is an error, not an empty tier."""
    Files(str(tmp_path)).put(manifest_path("j"), b"{")
    with pytest.raises(FarTierUnavailable, match=r"manifests/.*json of the far tier cannot be read"):
        FarTier.of(str(tmp_path)).units()
