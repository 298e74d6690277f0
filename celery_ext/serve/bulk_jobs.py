"""Actions on all tasks that a filter matched at a moment: counted first, then done in the background, and stoppable."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from secrets import token_urlsafe
from threading import Event, Lock, Thread
from time import monotonic

from celery import Celery

from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.problems import Problem
from celery_ext.waiting import revoke, snapshot
from celery_ext.waiting.bulk import Action, Bulk
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.search import Progress
from celery_ext.waiting.selection import Selection
from celery_ext.waiting.snapshot import Snapshot
from kombu_delayq.errors import DelayqError
from kombu_delayq.store.types import Waiting

logger = logging.getLogger(__name__)

#: Most jobs that are counted or run at once, and most that are kept: a snapshot has 8 bytes a message.
MOST_BUSY, MOST_KEPT = 4, 50
#: A job that nobody has touched for so long is forgotten, in s.
KEEP_S = 3600.0
#: For how long ``BulkJobs.count`` waits for the number, in s, so that the answer has it already.
WAIT_S = 1.0

_NOTHING = Progress(0, 0)

#: ``counting``, ``counted`` (it waits for the word), ``running``, ``stopped``, ``done`` or ``failed``.
BUSY = frozenset({"counting", "running"})


@dataclass
class BulkJob:
    """An action on all tasks that a filter matched.

    Attributes:
        selection: The filter.
        action: What is done to each task.
        who: Name of the caller who began it; nobody else sees it.
        id: Its name.
        state: Where it is.
        looked: How far the counting is.
        matched: The tasks; None until they are counted.
        work: The work; None until it begins.
        error: Why it failed.
    """

    selection: Selection
    action: Action
    who: str
    id: str = field(default_factory=partial(token_urlsafe, 12))
    state: str = "counting"
    looked: Progress = _NOTHING
    matched: Snapshot | None = None
    work: Bulk | None = None
    error: str = ""
    _stop: Event = field(default_factory=Event)
    _touched: float = field(default_factory=monotonic)

    @property
    def count(self) -> int | None:
        """How many tasks the filter matched; None until they are counted."""
        return None if self.matched is None else len(self.matched)

    @property
    def done(self) -> int:
        """How many tasks have an outcome."""
        return self.work.done if self.work else 0

    @property
    def outcomes(self) -> dict[str, int]:
        """How many tasks each outcome had so far."""
        return {str(word): count for word, count in dict(self.work.outcomes).items()} if self.work else {}

    def stop(self) -> None:
        """Ends it after the call of Redis that is under way. What is done stays done."""
        self._stop.set()


class BulkJobs:
    """The jobs of a server. They live in its memory: a server that ends stops them where they are."""

    def __init__(self) -> None:
        self._jobs: dict[str, BulkJob] = {}
        self._lock = Lock()

    def count(self, broker: ServeBroker, who: str, selection: Selection, action: Action) -> BulkJob:
        """Begins a job: counts the tasks, and notes which they are.

        Raises:
            Problem: 429, too many jobs are under way.
        """
        job = BulkJob(selection, action, who)
        with self._lock:
            self._tidy()
            if sum(other.state in BUSY for other in self._jobs.values()) >= MOST_BUSY:
                raise Problem(429, f"{MOST_BUSY} bulk actions are under way; wait until one is done, or stop one")
            self._jobs[job.id] = job
        self._spawn(job, partial(_count, broker, job)).join(WAIT_S)
        return job

    def get(self, job_id: str, who: str) -> BulkJob:
        """Returns a job of a caller.

        Raises:
            Problem: 404, there is none.
        """
        job = self._jobs.get(job_id)
        if job is None or job.who != who:
            raise Problem(404, "there is no such bulk action here: an hour after its end it is forgotten")
        job._touched = monotonic()
        return job

    def start(self, broker: ServeBroker, job: BulkJob, confirmed: int) -> None:
        """Lets a job do its work, if the caller has read the number of its tasks.

        Raises:
            Problem: 409, the job is not waiting for this, or the number is another.
        """
        with self._lock:
            if job.state != "counted" or job.matched is None:
                raise Problem(409, f"this bulk action is {job.state}, so it cannot be started")
            if confirmed != len(job.matched):
                raise Problem(409, f"it has {len(job.matched):,} tasks, not {confirmed:,}", "not-confirmed")
            if sum(other.state in BUSY for other in self._jobs.values()) >= MOST_BUSY:
                raise Problem(429, f"{MOST_BUSY} bulk actions are under way; wait until one is done, or stop one")
            job.work = Bulk(job.matched, job.action)
            job.state = "running"
        self._spawn(job, partial(_run, broker, job))

    def _spawn(self, job: BulkJob, work: Callable[[], None]) -> Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                logger.exception("bulk action %s of %r failed", job.action.name, job.who)
                known = isinstance(error, DelayqError)
                job.error = str(error) if known else "Redis did not answer, or refused; see the server's log"
                job.state = "failed"

        thread = Thread(target=guarded, name=f"bulk-{job.id}", daemon=True)
        thread.start()
        return thread

    def _tidy(self) -> None:
        idle = sorted((job for job in self._jobs.values() if job.state not in BUSY), key=lambda job: job._touched)
        for job in idle:
            if monotonic() - job._touched > KEEP_S or len(self._jobs) >= MOST_KEPT:
                del self._jobs[job.id]


def _count(broker: ServeBroker, job: BulkJob) -> None:
    def progress(found: Progress) -> None:
        job.looked = found

    job.matched = snapshot.take(broker.store, job.selection, progress=progress, stop=job._stop.is_set)
    job.state = "stopped" if job.matched is None else "counted"


def _run(broker: ServeBroker, job: BulkJob) -> None:
    assert job.work is not None  # noqa: S101  # `start` has made it
    store, state = broker.store, "failed"
    try:
        ended = job.work.run(store, stop=job._stop.is_set, announce=partial(_announce, broker.app))
        state = "done" if ended else "stopped"
    finally:
        what = {"filter": job.selection.as_json(), "outcomes": job.outcomes, "end": state}
        changed = sum(count for word, count in job.outcomes.items() if word in CHANGES)
        store.audit.note(job.who, f"bulk {job.action.name}", what, changed)
    job.state = state


#: Outcomes of tasks that are not as they were.
CHANGES = frozenset({"cancelled", "rescheduled", "transferred"})


def _announce(app: Celery, messages: list[Waiting]) -> None:
    for message in messages:
        revoke.announce_cancelled(app, DelayedTask(message))
