"""Actions on all tasks that a filter matched at a moment: counted first, then done in the background, and stoppable."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from secrets import token_urlsafe
from threading import Event, Lock, Thread
from time import monotonic

from celery_ext.connection import database_errors
from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.problems import Problem
from celery_ext.waiting import revoke, snapshot
from celery_ext.waiting.bulk import Action, Bulk
from celery_ext.waiting.search import Progress
from celery_ext.waiting.select import noted
from celery_ext.waiting.selection import Selection
from celery_ext.waiting.snapshot import Snapshot
from kombu_delayq.errors import DelayqError

logger = logging.getLogger(__name__)

#: Most runs that are counted or run at once, and most that are kept: a snapshot has 8 bytes a message.
MOST_BUSY, MOST_KEPT = 4, 50
#: A run that nobody has touched for so long is forgotten, in s.
KEEP_S = 3600.0
#: For how long ``BulkRuns.count`` waits for the number, in s, so that the answer has it already.
WAIT_S = 1.0

_NOTHING = Progress(0, 0)

#: ``counting``, ``counted`` (it waits for the word), ``running``, ``stopped``, ``done`` or ``failed``.
BUSY = frozenset({"counting", "running"})


@dataclass
class BulkRun:
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


class BulkRuns:
    """The runs of a server. They live in its memory: a server that ends stops them where they are."""

    def __init__(self) -> None:
        self._runs: dict[str, BulkRun] = {}
        self._lock = Lock()

    def count(self, broker: ServeBroker, who: str, selection: Selection, action: Action) -> BulkRun:
        """Begins a run: counts the tasks, and notes which they are.

        Raises:
            Problem: 429, too many runs are under way.
        """
        run = BulkRun(selection, action, who)
        with self._lock:
            self._tidy()
            if sum(other.state in BUSY for other in self._runs.values()) >= MOST_BUSY:
                raise Problem(429, f"{MOST_BUSY} bulk actions are under way; wait until one is done, or stop one")
            self._runs[run.id] = run
        self._spawn(run, partial(_count, broker, run)).join(WAIT_S)
        return run

    def get(self, run_id: str, who: str) -> BulkRun:
        """Returns a run of a caller.

        Raises:
            Problem: 404, there is none.
        """
        run = self._runs.get(run_id)
        if run is None or run.who != who:
            raise Problem(404, "there is no such bulk action here: an hour after its end it is forgotten")
        run._touched = monotonic()
        return run

    def start(self, broker: ServeBroker, run: BulkRun, confirmed: int) -> None:
        """Lets a run do its work, if the caller has read the number of its tasks.

        Raises:
            Problem: 409, the run is not waiting for this, or the number is another.
        """
        with self._lock:
            if run.state != "counted" or run.matched is None:
                raise Problem(409, f"this bulk action is {run.state}, so it cannot be started")
            if confirmed != len(run.matched):
                raise Problem(409, f"it has {len(run.matched):,} tasks, not {confirmed:,}", "not-confirmed")
            if sum(other.state in BUSY for other in self._runs.values()) >= MOST_BUSY:
                raise Problem(429, f"{MOST_BUSY} bulk actions are under way; wait until one is done, or stop one")
            run.work = Bulk(run.matched, run.action)
            run.state = "running"
        self._spawn(run, partial(_run, broker, run))

    def _spawn(self, run: BulkRun, work: Callable[[], None]) -> Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                logger.exception("bulk action %s of %r failed", run.action.name, run.who)
                away = "The journal" if isinstance(error, database_errors()) else "Redis"
                known = isinstance(error, DelayqError)
                run.error = str(error) if known else f"{away} did not answer, or refused; see the server's log"
                run.state = "failed"

        thread = Thread(target=guarded, name=f"bulk-{run.id}", daemon=True)
        thread.start()
        return thread

    def _tidy(self) -> None:
        idle = sorted((run for run in self._runs.values() if run.state not in BUSY), key=lambda run: run._touched)
        for run in idle:
            if monotonic() - run._touched > KEEP_S or len(self._runs) >= MOST_KEPT:
                del self._runs[run.id]


def _count(broker: ServeBroker, run: BulkRun) -> None:
    def progress(found: Progress) -> None:
        run.looked = found

    run.matched = snapshot.take(broker.store, run.selection, progress=progress, stop=run._stop.is_set)
    run.state = "stopped" if run.matched is None else "counted"


def _run(broker: ServeBroker, run: BulkRun) -> None:
    assert run.work is not None  # noqa: S101  # `start` has made it
    store = broker.store
    with noted(store, run.who, run.work):
        ended = run.work.run(store, stop=run._stop.is_set, announce=partial(revoke.announce_cancelled, broker.app))
    run.state = "done" if ended else "stopped"
