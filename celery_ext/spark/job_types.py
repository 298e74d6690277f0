"""Bulk jobs, their runs, and what Redis says of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, cast, runtime_checkable

from kombu_delayq.message import moment_of
from kombu_delayq.redis import Packed

#: States of a job that has ended well. An earlier version still sends what is staged where it is ``publishing``.
COMMITTED = ("committed", "publishing")


@runtime_checkable
class Packable(Protocol):
    """Messages that write themselves for the wire."""

    def packed(self) -> Packed:
        """Returns the fields of all messages, one after the other."""
        ...


class JobRun(NamedTuple):
    """One run of a bulk job, and how it writes.

    Attributes:
        name: Name of the job.
        run: Number of the run; later runs have larger ones.
        ttl_ms: For how long Redis remembers the job, in ms.
        max_rate: Messages a second for the whole job, 0 for no limit.
        max_depth: Largest number of messages that a queue may hold, delayed ones included, 0 for no limit.
        cancels: Whether it may ``exclude`` ids, so that no task of it sends them.
        if_waiting: ``keep``, ``replace`` or ``reschedule`` what waits in the same queue under the id of a message, or
            empty to add.
        dated: Whether an id is sent once for each due time, and not once in the job.
    """

    name: str
    run: int
    ttl_ms: int
    max_rate: float = 0.0
    max_depth: int = 0
    cancels: bool = False
    if_waiting: str = ""
    dated: bool = False


class Begun(NamedTuple):
    """Whether a run may write.

    Attributes:
        word: ``open`` if it may. Otherwise ``committed``, ``aborted``, ``superseded`` by a later run, or ``mixed``: a
            run of an earlier version has staged messages.
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


class JobCounts(NamedTuple):
    """What the driver of a bulk job has counted when it commits the job, from the reports of its Spark tasks.

    Spark has one report of each task, whichever of its attempts came first, so each row counts once.

    Attributes:
        rows: Number of rows.
        bad: Number of rows that make no task.
        dead_lettered: Number of bad rows that became dead letters.
        cancelled: Number of tasks that were cancelled.
        offered: Number of messages that its Spark tasks had for Redis, dead letters among them.
        fresh: How many of these they sent.
    """

    rows: int = 0
    bad: int = 0
    dead_lettered: int = 0
    cancelled: int = 0
    offered: int = 0
    fresh: int = 0


#: State of a job. ``running``: it has not ended, though its writer may have died. The others: it has ended.
JobState = Literal["running", "committed", "aborted"]


@dataclass(frozen=True)
class Job:
    """A bulk job as Redis remembers it.

    ``sent``, ``kept`` and ``replaced`` hold at any time: each message is counted in the step of Redis that sends it, or
    keeps it out. The other counts are those of the run that ended last, and None before.

    Attributes:
        name: Name of the job: its ``job_id``, or that of a query and its micro-batch.
        state: State of the job.
        run: Number of its latest run.
        base_ms: When it began, ms since the epoch.
        sent: Number of messages that it has sent, with the dead letters.
        kept: Number of messages that ``if_waiting`` kept out: another one of their id waited, or with ``reschedule``
            none.
        replaced: How many of the messages sent have taken the place of one of their id that waited.
        rows: Number of rows.
        bad: Number of rows that make no task.
        dead_lettered: Number of bad rows that became dead letters.
        cancelled: Number of tasks that it has cancelled.
        sent_before: Number of messages that were not sent because another run, or another attempt of a Spark task, had
            sent them or kept them out.
        twice: Number of messages that were not sent because another row of the same data has the same id. If an earlier
            run had rows that the committed one has not, as many of these may count as ``sent_before``.
        ended_ms: When it was committed or aborted, ms since the epoch; None while it runs.
    """

    name: str
    state: JobState
    run: int
    base_ms: float
    sent: int
    kept: int = 0
    replaced: int = 0
    rows: int | None = None
    bad: int | None = None
    dead_lettered: int | None = None
    cancelled: int | None = None
    sent_before: int | None = None
    twice: int | None = None
    ended_ms: float | None = None

    @classmethod
    def of(cls, name: str, fields: Mapping[str, str], of_parts: Mapping[str, int]) -> "Job":
        """Returns a job from the fields of its HASH, and what its parts have counted in all queues together."""
        state = {"open": "running", "publishing": "committed"}.get(fields["state"], fields["state"])
        names = ("rows", "bad", "dead_lettered", "cancelled", "offered", "fresh")
        counts = {one: int(fields[one]) if one in fields else None for one in names}
        sent_before, twice = _not_sent(
            counts.pop("offered"), counts.pop("fresh"), of_parts["enqueued"] + of_parts["kept"]
        )
        return cls(
            name=name,
            state=cast(JobState, state),
            run=int(fields["run"]),
            base_ms=float(fields["base"]),
            sent=of_parts["enqueued"],
            kept=of_parts["kept"],
            replaced=of_parts["replaced"],
            **counts,
            sent_before=sent_before,
            twice=twice,
            ended_ms=float(fields["ended"]) if "ended" in fields else None,
        )

    @property
    def is_ended(self) -> bool:
        """Whether no task writes it any more."""
        return self.state != "running"

    @property
    def began(self) -> datetime:
        """When it began."""
        return moment_of(self.base_ms)

    @property
    def ended(self) -> datetime | None:
        """When it was committed or aborted; None while it runs."""
        return None if self.ended_ms is None else moment_of(self.ended_ms)


def _not_sent(offered: int | None, fresh: int | None, enqueued: int) -> tuple[int | None, int | None]:
    """Returns how many messages of the committed run were sent before, and how many came twice in its data.

    By the commit all ids of its data are sent. So what it had more than there are ids, came twice in the data.
    """
    if offered is None or fresh is None:
        return None, None
    twice = min(max(offered - enqueued, 0), offered - fresh)
    return offered - fresh - twice, twice
