"""Bulk jobs, their runs, and what Redis says of them."""

from dataclasses import dataclass
from typing import NamedTuple

#: Largest number of staged messages, and about the largest number of bytes, that one call sends.
PUBLISH_COUNT, PUBLISH_BYTES = 200, 300_000
#: Entries of the LIST that one staged message takes.
ENTRIES = 5


class JobRun(NamedTuple):
    """One run of a bulk job, and how it writes.

    Attributes:
        name: Name of the job.
        run: Number of the run; later runs have larger ones.
        ttl_ms: For how long Redis remembers the job, in ms.
        staged: Whether the job's messages stay invisible until the job is committed, and are sent then.
        max_rate: Messages a second for the whole job, 0 for no limit.
        max_depth: Largest number of messages that a queue may hold, delayed ones included, 0 for no limit.
        cancels: Whether it may ``exclude`` ids, so that no task of it sends them.
    """

    name: str
    run: int
    ttl_ms: int
    staged: bool = False
    max_rate: float = 0.0
    max_depth: int = 0
    cancels: bool = False


class Begun(NamedTuple):
    """Whether a run may write.

    Attributes:
        word: ``open`` if it may. Otherwise ``committed``, ``aborted``, ``superseded`` by a later run, or ``mixed``: an
            earlier run has sent messages and this one would stage them, or the reverse.
        base_ms: When the job began, ms since the epoch; the same for all its runs.
    """

    word: str
    base_ms: float


class Enqueued(NamedTuple):
    """The result of sending messages of a bulk job.

    Attributes:
        word: ``enqueued``. With any other word nothing has changed: ``wait`` (the rate is used up), ``deep`` (the queue
            is full), or the reason why the run may not write: ``committed``, ``aborted``, ``superseded`` or
            ``unknown``.
        fresh: Number of ids that are new in the job.
        repeated: Number of ids that the job had before.
        wait_ms: With ``wait``: how long to wait, in ms.
        depth: With ``deep``: number of messages in the queue.
    """

    word: str
    fresh: int = 0
    repeated: int = 0
    wait_ms: float = 0.0
    depth: int = 0


class Staged(NamedTuple):
    """Staged messages that a caller has read before it sends them.

    Attributes:
        most: How many it has read.
        left: How many were staged then.
        cutoff_ms: Due time after which messages wait elsewhere, ms since the epoch. They are not sent.
    """

    most: int
    left: int
    cutoff_ms: float


@dataclass(frozen=True)
class Job:
    """A bulk job as Redis remembers it.

    Attributes:
        name: Name of the job.
        state: ``open``, ``committed``, ``publishing`` (staged messages are being sent) or ``aborted``.
        run: Number of the job's latest run.
        base_ms: When the job began, ms since the epoch.
        enqueued: Number of messages that the job has sent or staged.
        staged: Number of staged messages that are still to be sent.
        tier: Where its far rows go, as of ``pin_tier``; None for a job that has not pinned it.
    """

    name: str
    state: str
    run: int
    base_ms: float
    enqueued: int
    staged: int
    tier: str | None = None
