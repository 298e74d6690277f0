"""What goes into the operations on bulk jobs and what comes out of them."""

from dataclasses import dataclass
from typing import NamedTuple


class JobRun(NamedTuple):
    """One run of a bulk job, and how it writes.

    Attributes:
        name: Of the job.
        run: Number of the run; later ones are larger.
        ttl_ms: For how long the job is remembered.
        staged: Whether its messages are sent when it is committed, all before then being invisible.
        max_rate: Messages a second for the whole job, 0 for any number.
        max_depth: Most messages that may be in a queue, delayed ones among them, 0 for any number.
    """

    name: str
    run: int
    ttl_ms: int
    staged: bool = False
    max_rate: float = 0.0
    max_depth: int = 0


class Begun(NamedTuple):
    """Whether a run may write.

    Attributes:
        word: ``open``; else it may not: ``committed``, ``aborted``, ``superseded`` by a later run, or ``mixed``: a run
            before it has sent what this one would stage, or the reverse.
        base_ms: When the job began, ms since the epoch; the same for all its runs.
    """

    word: str
    base_ms: float


class Enqueued(NamedTuple):
    """What became of messages of a bulk job.

    Attributes:
        word: ``enqueued``; with nothing changed, ``wait`` or ``deep``, or why the run may not write: ``committed``,
            ``aborted``, ``superseded`` or ``unknown``.
        fresh: Number of ids that are new in the job.
        repeated: Number of ids that the job had before.
        wait_ms: How long to wait for the rate.
        depth: Number of messages in the queue, when there are too many.
    """

    word: str
    fresh: int = 0
    repeated: int = 0
    wait_ms: float = 0.0
    depth: int = 0


@dataclass(frozen=True)
class Job:
    """A bulk job as Redis remembers it.

    Attributes:
        name: Of the job.
        state: ``open``, ``committed``, ``publishing`` (staged messages are being sent) or ``aborted``.
        run: Number of its latest run.
        base_ms: When it began, ms since the epoch.
        enqueued: Number of messages that it sent or staged.
        staged: Number of messages that are still to be sent.
    """

    name: str
    state: str
    run: int
    base_ms: float
    enqueued: int
    staged: int
