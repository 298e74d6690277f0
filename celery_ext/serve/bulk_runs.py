"""Actions on many messages, which a process of the server runs and all of them show."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from secrets import token_urlsafe
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Literal, NamedTuple

import msgspec
from starlette.requests import Request

from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.changes import BULK_ACTIONS
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import ServeBroker, serve_of
from celery_ext.serve.store import SharedRuns
from celery_ext.waiting import Bulk, BulkAction, Progress, Selection, Snapshot, audited_bulk, revoke, take_snapshot
from kombu_delayq.errors import DelayqError, StoreUnavailable
from kombu_delayq.redis import AWAY

logger = logging.getLogger(__name__)


#: States of an action that changes by itself.
BUSY = frozenset({"counting", "running"})
#: States of an action that may still change something.
UNFINISHED = BUSY | {"counted"}
#: A process writes the states of its unfinished actions at least so often. One that is silent for longer has ended.
WRITE_S, SILENT_S = 3.0, 20.0
#: For how long a command waits for its reply, and how often it is looked for, in s.
REPLY_S, LOOK_S = 5.0, 0.05


class RunView(msgspec.Struct, kw_only=True):
    """How a bulk action is.

    Attributes:
        id: Its name.
        who: Name of the caller who began it; nobody else sees it.
        action: What is done to each task.
        queues: Names of the queues of the filter; None for all.
        from_ms: Least due time of the filter, ms since the epoch.
        to_ms: Due time of the filter that all tasks are before, ms since the epoch.
        task: Name of the task in the filter.
        q: What the filter searches the arguments for.
        retried: Whether the filter is for tasks that wait for a retry.
        state: ``counting``, ``counted`` (it waits for the command), ``running``, ``stopped``, ``done`` or ``failed``.
        count: How many tasks the filter matched; None until they are counted.
        as_of_ms: When they had been counted, ms since the epoch; None before.
        looked: How many tasks the counting has looked at.
        to_look: How many it has to look at.
        has_begun: Whether the work has begun.
        done: How many tasks have an outcome.
        outcomes: How many tasks each outcome had so far.
        error: Why it failed.
    """

    id: str
    who: str
    action: BulkAction
    queues: tuple[str, ...] | None
    from_ms: float
    to_ms: float
    task: str | None
    q: str | None
    retried: bool
    state: str = "counting"
    count: int | None = None
    as_of_ms: float | None = None
    looked: int = 0
    to_look: int = 0
    has_begun: bool = False
    done: int = 0
    outcomes: dict[str, int] = {}
    error: str = ""


class Command(NamedTuple):
    """What a caller tells an action: to start, with the number of tasks that it has read, or to stop."""

    what: Literal["start", "stop"]
    confirmed: int = 0


class _Reply(msgspec.Struct):
    """Whether a command was followed: if not, the status, the sentence and the kind of the problem."""

    status: int = 200
    detail: str = ""
    kind: str = ""


#: Most runs that are counted or run at once, and most that are kept: a snapshot has 8 bytes a message.
MOST_BUSY, MOST_KEPT = 4, 50
#: A run that nobody has touched for so long is forgotten, in s.
KEEP_S = 3600.0
#: For how long ``BulkRuns.count`` waits for the number, in s, so that the answer has it already.
WAIT_S = 1.0
#: How often a process looks for commands of others to its runs, in s.
LISTEN_S = 0.25
#: For how long a process that ends waits for calls of its runs, in s.
END_S = 10.0


@dataclass
class BulkRun:
    """A bulk action in the process that does it.

    Attributes:
        shown: How it is, but for the outcomes of its work.
        matched: The tasks; None until they are counted.
        work: The work; None until it begins.
        stop: Set when it is to end.
        thread: The latest that counts or works; None before.
        touched: When somebody last asked for it, in s of ``monotonic``.
        writing: Held by who writes it, so that what is in Redis is what was written last.
        written: What other processes see of it; None before, and while that cannot be written.
        tried: When this was last tried to be written, in s of ``monotonic``.
    """

    shown: RunView
    matched: Snapshot | None = None
    work: Bulk | None = None
    stop: Event = field(default_factory=Event)
    thread: Thread | None = None
    touched: float = field(default_factory=monotonic)
    writing: Lock = field(default_factory=Lock)
    written: RunView | None = None
    tried: float = -inf

    @property
    def view(self) -> RunView:
        """How it is."""
        work, shown = self.work, msgspec.structs.replace(self.shown)  # first: at its end it has all its outcomes
        if work is None:
            return shown
        outcomes = {str(word): count for word, count in dict(work.outcomes).items()}
        return msgspec.structs.replace(shown, has_begun=True, done=sum(outcomes.values()), outcomes=outcomes)


class BulkRuns:
    """The runs of a server. A process that ends stops its own where they are.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._closed = Event()
        self._runs: dict[str, BulkRun] = {}
        self._lock = Lock()
        self._listener = Thread(target=self._listen, name="bulk-listener", daemon=True)
        self._listener.start()

    def close(self) -> None:
        """Stops all runs, and waits for their calls under way: what these have changed is announced and audited."""
        self._closed.set()
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.stop.set()
        self._listener.join()
        until = monotonic() + END_S
        for run in runs:
            if run.thread is not None:
                run.thread.join(max(until - monotonic(), 0))
            if not _is_written(run):
                _write(self._broker, run)

    def count(self, who: str, selection: Selection, action: BulkAction) -> RunView:
        """Begins a run: counts the tasks, and notes which they are.

        Raises:
            Problem: 429, too many runs are under way.
        """
        fields = ("queues", "from_ms", "to_ms", "task", "q", "retried")
        chosen = {name: getattr(selection, name) for name in fields}
        run = BulkRun(RunView(id=token_urlsafe(12), who=who, action=action, **chosen))
        with self._lock:
            self._tidy(MOST_KEPT - 1)
            self._check_room()
            self._runs[run.shown.id] = run
        self._spawn(run, partial(_count, self._broker, run, selection)).join(WAIT_S)
        _write(self._broker, run)
        return run.view

    def get(self, run_id: str, who: str) -> RunView:
        """Returns a run of a caller.

        Raises:
            Problem: 404, there is none.
        """
        if run := self._runs.get(run_id):
            run.touched = monotonic()
        found = run.view if run else self._read(run_id)
        if found is None or found.who != who:
            raise Problem(404, "there is no such bulk action here: an hour after its end it is forgotten")
        return found

    def start(self, found: RunView, confirmed: int) -> RunView:
        """Lets a run do its work, if the caller has read the number of its tasks.

        Raises:
            Problem: 409, the run is not waiting for this, or the number is another; 429, too many runs are under way.
        """
        if found.state != "counted":
            raise _not_counted(found.state)
        return self._tell(found, Command("start", confirmed))

    def stop(self, found: RunView) -> RunView:
        """Ends a run after the call of Redis that is under way. What is done stays done."""
        return self._tell(found, Command("stop")) if found.state in UNFINISHED else found

    def _read(self, run_id: str) -> RunView | None:
        """Returns a run of any process of the server; None if there is none."""
        found = self._broker.store.part(SharedRuns).read(run_id)
        if found is None:
            return None
        view = msgspec.msgpack.decode(found.state, type=RunView)
        if view.state in UNFINISHED and found.age_s > SILENT_S:
            view.state, view.error = "failed", "the process of the server that had it is gone; what is done stays done"
        return view

    def _tell(self, found: RunView, command: Command) -> RunView:
        """Lets a run follow a command. One of another process gets it through Redis, and replies.

        Raises:
            Problem: The run does not follow it; 503 if its process does not reply.
        """
        if run := self._runs.get(found.id):
            self._follow(run, command)
            return run.view
        shared, command_id = self._broker.store.part(SharedRuns), token_urlsafe(9)
        shared.send(found.id, command_id, msgspec.msgpack.encode(command))
        until = monotonic() + REPLY_S
        while (reply := shared.reply_to(found.id, command_id)) is None:
            if monotonic() > until:
                detail = "the process of the server that has this bulk action does not answer; look at it again"
                raise Problem(503, detail, "answer-lost", headers={"Retry-After": "5"}, outcome="unknown")
            sleep(LOOK_S)
        said = msgspec.msgpack.decode(reply, type=_Reply)
        if said.status != 200:
            raise Problem(said.status, said.detail, said.kind)
        return self._read(found.id) or found

    def _follow(self, run: BulkRun, command: Command) -> None:
        run.touched = monotonic()
        if command.what == "start":
            self._start(run, command.confirmed)
        else:
            run.stop.set()
        _write(self._broker, run)

    def _start(self, run: BulkRun, confirmed: int) -> None:
        with self._lock:
            if run.shown.state != "counted" or run.matched is None:
                raise _not_counted(run.shown.state)
            if confirmed != len(run.matched):
                raise Problem(409, f"it has {len(run.matched):,} tasks, not {confirmed:,}", "not-confirmed")
            self._check_room()
            run.work = Bulk(run.matched, run.shown.action)
            run.shown.state = "running"
        self._spawn(run, partial(_run, self._broker, run, run.work))

    def _check_room(self) -> None:
        if sum(other.shown.state in BUSY for other in self._runs.values()) >= MOST_BUSY:
            raise Problem(429, f"{MOST_BUSY} bulk actions are under way; wait until one is done, or stop one")

    def _spawn(self, run: BulkRun, work: Callable[[], None]) -> Thread:
        shown = run.shown

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                logger.exception("bulk action %s of %r failed", shown.action.name, shown.who)
                away = f"The {error.feature}" if isinstance(error, StoreUnavailable) else "Redis"
                known = isinstance(error, DelayqError)
                shown.error = str(error) if known else f"{away} did not answer, or refused; see the server's log"
                shown.state = "failed"

        thread = Thread(target=guarded, name=f"bulk-{shown.id}", daemon=True)
        thread.start()
        run.thread = thread
        return thread

    def _listen(self) -> None:
        """Writes the states of the runs, follows commands of other processes, and forgets old runs."""
        while not self._closed.wait(LISTEN_S):
            with self._lock:
                self._tidy(MOST_KEPT)
                runs = [run for run in self._runs.values() if not _is_written(run)]
            for run in runs:
                self._listen_for(run)

    def _listen_for(self, run: BulkRun) -> None:
        run_id = run.shown.id
        try:
            shared = self._broker.store.part(SharedRuns)
            for command_id, command in shared.commands(run_id).items():
                said = _Reply()
                try:
                    self._follow(run, msgspec.msgpack.decode(command, type=Command))
                except Problem as problem:
                    said = _Reply(problem.status, problem.detail, problem.kind)
                shared.reply(run_id, command_id, msgspec.msgpack.encode(said))
        except Exception as error:  # this thread goes on: Redis may answer the next time
            logger.debug("commands to bulk action %s are not read: %s", run_id, error)
        _write(self._broker, run)

    def _tidy(self, most: int) -> None:
        idle = sorted((run for run in self._runs.values() if run.shown.state not in BUSY), key=lambda run: run.touched)
        for run in idle:
            if monotonic() - run.touched > KEEP_S or len(self._runs) > most:
                del self._runs[run.shown.id]


def runs_of(request: Request) -> BulkRuns:
    """Returns the bulk actions of the server that a request reached."""
    return serve_of(request).broker.part(BulkRuns)


def run_of(request: Request) -> RunView:
    """Returns the bulk action that a path names, of a caller who must still be allowed to do it."""
    caller = caller_of(request)
    run = runs_of(request).get(request.path_params["id"], caller.name)
    for queue in run.queues or (None,):
        caller.check(BULK_ACTIONS[run.action.name], queue=queue)
    return run


def _not_counted(state: str) -> Problem:
    return Problem(409, f"this bulk action is {state}, so it cannot be started")


def _is_written(run: BulkRun) -> bool:
    """Whether a run has come to its end, and the other processes can see that."""
    return run.written is not None and run.written.state not in UNFINISHED


def _write(broker: ServeBroker, run: BulkRun) -> None:
    """Lets other processes see a run, if it has changed or was last written long ago."""
    with run.writing:
        view, is_first = run.view, run.tried == -inf
        if run.written in (view, None) and monotonic() - run.tried < WRITE_S:
            return
        could_be_seen, run.tried = is_first or run.written is not None, monotonic()
        try:
            broker.store.part(SharedRuns).write(view.id, msgspec.msgpack.encode(view))
        except AWAY as error:
            run.written = None
            if could_be_seen:
                logger.warning("other processes of the server do not see bulk action %s: %s", view.id, error)
        else:
            run.written = view


def _count(broker: ServeBroker, run: BulkRun, selection: Selection) -> None:
    shown = run.shown

    def progress(found: Progress) -> None:
        shown.looked, shown.to_look = found.looked, found.of

    matched = take_snapshot(broker.store, selection, progress=progress, stop=run.stop.is_set)
    if matched is None:
        shown.state = "stopped"
        return
    run.matched, shown.count, shown.as_of_ms = matched, len(matched), matched.as_of_ms
    shown.state = "counted"


def _run(broker: ServeBroker, run: BulkRun, work: Bulk) -> None:
    store, who = broker.store, run.shown.who
    with audited_bulk(work, who):
        ended = work.run(store, stop=run.stop.is_set, announce=partial(revoke.announce_cancelled, broker.app))
    run.shown.state = "done" if ended else "stopped"
