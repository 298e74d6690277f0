"""The part of a job that goes to the far tier: its files, and the manifest that makes them count."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from celery_ext.spark.errors import FarTierUnavailable
from celery_ext.spark.far.manifest import DataFile, Manifest, manifest_path, prepared_path
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far.writer import FarWriter
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.commit_message import CommitMessage
from celery_ext.spark.write.far_cancel import cancel_rows
from celery_ext.spark.write.sender import refused
from kombu_delayq.store import SparkStore
from kombu_delayq.store.job_types import Begun, JobRun

#: How long a run of a job that is chosen has time to write its manifest, in ms. Its files are kept for longer.
FRESH_MS = 12 * 3_600_000.0


@dataclass(frozen=True)
class FarTask:
    """What one Spark task does with rows that are due late.

    Attributes:
        from_us: Rows that are due later than this are due late, µs since the epoch.
        writer: Writes these rows; None when the tier has those of the job already.
    """

    from_us: int
    writer: FarWriter | None

    def close(self) -> list[DataFile]:
        """Writes what is left, and returns all files."""
        return [] if self.writer is None else self.writer.close()


@dataclass(frozen=True)
class FarJob:
    """The far tier of a job. Pickled to executors.

    Attributes:
        tier: The tier.
        horizon_ms: Rows that are due later than this after the job began go to the tier.
    """

    tier: FarTier
    horizon_ms: float

    @classmethod
    def of(cls, options: WriteOptions) -> "FarJob | None":
        """Returns the far tier that the options name; None without one."""
        return None if options.far is None else cls(FarTier.of(options.far), options.far_horizon * 1000)

    def manifest(self, job: str) -> Manifest | None:
        """Returns the manifest of a job; None while it is not committed."""
        return self.tier.manifest(job)

    def rows(self, job: str) -> int:
        """Returns how many rows of a job are in the tier, promoted ones among them; 0 while it is not committed."""
        committed = self.manifest(job)
        return 0 if committed is None else sum(file.rows for file in committed.files)

    def begin(self, store: SparkStore, job: JobRun, begun: Begun) -> FarTask | None:
        """Begins a Spark task. Returns None when the job was committed before, and Redis has forgotten it since.

        Raises:
            StragglerRefused: The job has begun with another tier or horizon.
        """
        committed = self.manifest(job.name)
        if committed is not None and committed.base_ms != begun.base_ms:
            return None
        if not store.jobs.pin_tier(job, f"{self.horizon_ms:.17g} {self.tier.files.url}"):
            raise refused(job.name, "other tier")
        writer = None
        if committed is None:
            writer = FarWriter(self.tier.files, job.name, job.run, uuid4().hex[:12], begun.base_ms)
        return FarTask(round((begun.base_ms + self.horizon_ms) * 1000), writer)

    def commit(self, store: SparkStore, job: JobRun, reports: Sequence[CommitMessage], retry: Retry) -> int:
        """Makes the files of a job count, and cancels rows of the tier. Returns how many it has cancelled.

        Raises:
            StragglerRefused: A later run has taken the job over, or the job was aborted.
        """
        self._name_files(store, job, reports, retry)
        # The rows of this job are there by now: an id that it enqueues and cancels does not wait.
        ids = list(dict.fromkeys(task_id for report in reports for task_id in report.cancels))
        return len(cancel_rows(self.tier, store, ids)) if ids else 0

    def _name_files(self, store: SparkStore, job: JobRun, reports: Sequence[CommitMessage], retry: Retry) -> None:
        """Writes the manifest, once, whichever run of the job wrote the files.

        Redis chooses one run, whose manifest is then written. So whoever writes it writes the same, and no file system
        has to refuse a second one.
        """
        if self.manifest(job.name) is not None:
            return
        found = retry.until_done(lambda: store.jobs.find(job.name))
        base_ms = 0.0 if found is None else found.base_ms
        files = tuple(file for report in reports for file in report.files)
        manifest = Manifest(str(uuid4()), job.name, job.run, base_ms, self.horizon_ms, files)
        own = prepared_path(job.name, job.run)
        self.tier.files.put(own, manifest.to_json())
        chosen = retry.until_done(lambda: store.jobs.choose(job, FRESH_MS))
        if chosen == "committed":
            return
        if isinstance(chosen, str):
            raise refused(job.name, chosen)
        self._name(job.name, prepared_path(job.name, chosen))
        self.tier.files.delete([own])

    def _name(self, job: str, prepared: str) -> None:
        content = self.tier.files.read(prepared)
        if content is None:
            if self.manifest(job) is None:  # else the driver of the chosen run was faster
                raise FarTierUnavailable(f"{prepared} is missing in the far tier; run the job {job} again in a day")
        elif json.loads(content)["files"]:
            self.tier.files.put(manifest_path(job), content)
