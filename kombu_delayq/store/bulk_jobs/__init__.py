"""The store's operations on bulk jobs, which send each id once, however often their tasks run."""

from kombu_delayq.store.bulk_jobs.jobs import BulkJobs
from kombu_delayq.store.bulk_jobs.types import (
    ENTRIES,
    PUBLISH_BYTES,
    PUBLISH_COUNT,
    Begun,
    Enqueued,
    Job,
    JobCounts,
    JobPart,
    JobRun,
    JobState,
    Staged,
)

__all__ = [
    "ENTRIES",
    "PUBLISH_BYTES",
    "PUBLISH_COUNT",
    "Begun",
    "BulkJobs",
    "Enqueued",
    "Job",
    "JobCounts",
    "JobPart",
    "JobRun",
    "JobState",
    "Staged",
]
