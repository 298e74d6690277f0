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
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from starlette.requests import Request

from celery_ext.connection import database_errors
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import ServeBroker, serve_of
from celery_ext.waiting import Bulk, BulkAction, Progress, Selection, Snapshot, audited_bulk, revoke, take_snapshot
from kombu_delayq.errors import DelayqError
from kombu_delayq.store import OperatorStore

logger = logging.getLogger(__name__)


#: States of an action that changes by itself.
BUSY = frozenset({"counting", "running"})
#: States of an action that may still change something.
UNFINISHED = BUSY | {"counted"}
#: A process writes the states of its unfinished actions at least so often. One that is silent for longer has ended.
WRITE_S, SILENT_S = 3.0, 20.0
#: For how long a command waits for its reply, and how often it is looked for, in s.
REPLY_S, LOOK_S = 5.0, 0.05


class RunView(msgspec.Struct, frozen=True, kw_only=True):
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
    state: str
    count: int | None
    as_of_ms: float | None
    looked: int
    to_look: int
    has_begun: bool
    done: int
    outcomes: dict[str, int]
    error: str


class Command(NamedTuple):
    """What a caller tells an action: to start, with the number of tasks that it has read, or to stop."""

    what: Literal["start", "stop"]
    confirmed: int = 0


class _Reply(msgspec.Struct):
    """Whether a command was followed: if not, the status, the sentence and the kind of the problem."""

    status: int = 200
    detail: str = ""
    kind: str = ""


def read_view(store: OperatorStore, run_id: str) -> RunView | None:
    """Returns an action of any process of the server; None if there is none."""
    found = store.shared_runs.read(run_id)
    if found is None:
        return None
    view = msgspec.msgpack.decode(found.state, type=RunView)
    if view.state in UNFINISHED and found.age_s > SILENT_S:
        error = "the process of the server that had it is gone; what is done stays done"
        return msgspec.structs.replace(view, state="failed", error=error)
    return view


def write_view(store: OperatorStore, view: RunView) -> None:
    """Lets the other processes of the server see an action."""
    store.shared_runs.write(view.id, msgspec.msgpack.encode(view))


def tell(store: OperatorStore, view: RunView, command: Command) -> RunView:
    """Sends a command to an action of another process, and waits for the reply. Returns how the action is then.

    Raises:
        Problem: That of the reply; 503 if there is none.
    """
    command_id = token_urlsafe(9)
    store.shared_runs.send(view.id, command_id, msgspec.msgpack.encode(command))
    until = monotonic() + REPLY_S
    while (reply := store.shared_runs.reply_to(view.id, command_id)) is None:
        if monotonic() > until:
            detail = "the process of the server that has this bulk action does not answer; look at it again"
            raise Problem(503, detail, "answer-lost", headers={"Retry-After": "5"}, outcome="unknown")
        sleep(LOOK_S)
    found = msgspec.msgpack.decode(reply, type=_Reply)
    if found.status != 200:
        raise Problem(found.status, found.detail, found.kind)
    return read_view(store, view.id) or view


def commands_to(store: OperatorStore, run_id: str) -> dict[str, Command]:
    """Returns the commands of other processes to an action of this one, by the ids to reply to."""
    told = store.shared_runs.commands(run_id)
    return {command_id: msgspec.msgpack.decode(command, type=Command) for command_id, command in told.items()}


def reply_to(store: OperatorStore, run_id: str, command_id: str, problem: Problem | None) -> None:
    """Replies to a command of another process."""
    said = _Reply() if problem is None else _Reply(problem.status, problem.detail, problem.kind)
    store.shared_runs.reply(run_id, command_id, msgspec.msgpack.encode(said))


#: Most runs that are counted or run at once, and most that are kept: a snapshot has 8 bytes a message.
MOST_BUSY, MOST_KEPT = 4, 50
#: A run that nobody has touched for so long is forgotten, in s.
KEEP_S = 3600.0
#: For how long ``BulkRuns.count`` waits for the number, in s, so that the answer has it already.
WAIT_S = 1.0
#: How often a process looks for commands of others to its runs, in s.
LISTEN_S = 0.25

_NOTHING = Progress(0, 0)


@dataclass
class BulkRun:
    """An action on all tasks that a filter matched, in the process that does it.

    Attributes:
        selection: The filter.
        action: What is done to each task.
        who: Name of the caller who began it; nobody else sees it.
        id: Its name.
        state: Where it is, as in ``RunView``.
        looked: How far the counting is.
        matched: The tasks; None until they are counted.
        work: The work; None until it begins.
        error: Why it failed.
    """

    selection: Selection
    action: BulkAction
    who: str
    id: str = field(default_factory=partial(token_urlsafe, 12))
    state: str = "counting"
    looked: Progress = _NOTHING
    matched: Snapshot | None = None
    work: Bulk | None = None
    error: str = ""
    _stop: Event = field(default_factory=Event)
    _touched: float = field(default_factory=monotonic)
    #: What other processes see of it, and when this was last tried to be written; the first is None if that failed.
    _written: RunView | None = None
    _tried: float = -inf

    @property
    def view(self) -> RunView:
        """How it is."""
        state, chosen, work, matched = self.state, self.selection, self.work, self.matched
        return RunView(
            id=self.id,
            who=self.who,
            action=self.action,
            queues=chosen.queues,
            from_ms=chosen.from_ms,
            to_ms=chosen.to_ms,
            task=chosen.task,
            q=chosen.q,
            retried=chosen.retried,
            state=state,
            count=None if matched is None else len(matched),
            as_of_ms=None if matched is None else matched.as_of_ms,
            looked=self.looked.looked,
            to_look=self.looked.of,
            has_begun=work is not None,
            done=work.done if work else 0,
            outcomes={str(word): count for word, count in dict(work.outcomes).items()} if work else {},
            error=self.error,
        )


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
        self._listener: Thread | None = None

    def close(self) -> None:
        """Stops all runs."""
        self._closed.set()
        for run in list(self._runs.values()):
            run._stop.set()
        if listener := self._listener:
            listener.join()

    def count(self, who: str, selection: Selection, action: BulkAction) -> RunView:
        """Begins a run: counts the tasks, and notes which they are.

        Raises:
            Problem: 429, too many runs are under way.
        """
        run = BulkRun(selection, action, who)
        with self._lock:
            self._tidy(MOST_KEPT - 1)
            self._check_room()
            self._runs[run.id] = run
        self._spawn(run, partial(_count, self._broker, run)).join(WAIT_S)
        _write(self._broker, run)
        self._listen()
        return run.view

    def get(self, run_id: str, who: str) -> RunView:
        """Returns a run of a caller.

        Raises:
            Problem: 404, there is none.
        """
        if run := self._runs.get(run_id):
            run._touched = monotonic()
        found = run.view if run else read_view(self._broker.store, run_id)
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

    def _tell(self, found: RunView, command: Command) -> RunView:
        run = self._runs.get(found.id)
        if run is None:
            return tell(self._broker.store, found, command)
        self._follow(run, command)
        return run.view

    def _follow(self, run: BulkRun, command: Command) -> None:
        run._touched = monotonic()
        if command.what == "start":
            self._start(run, command.confirmed)
        else:
            run._stop.set()
        _write(self._broker, run)

    def _start(self, run: BulkRun, confirmed: int) -> None:
        with self._lock:
            if run.state != "counted" or run.matched is None:
                raise _not_counted(run.state)
            if confirmed != len(run.matched):
                raise Problem(409, f"it has {len(run.matched):,} tasks, not {confirmed:,}", "not-confirmed")
            self._check_room()
            run.work = Bulk(run.matched, run.action)
            run.state = "running"
        self._spawn(run, partial(_run, self._broker, run))

    def _check_room(self) -> None:
        if sum(other.state in BUSY for other in self._runs.values()) >= MOST_BUSY:
            raise Problem(429, f"{MOST_BUSY} bulk actions are under way; wait until one is done, or stop one")

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

    def _listen(self) -> None:
        """Lets a thread write the states of the runs and follow commands of other processes, while there are runs."""
        with self._lock:
            if self._listener is None:
                self._listener = Thread(target=self._keep_listening, name="bulk-listener", daemon=True)
                self._listener.start()

    def _keep_listening(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                self._tidy(MOST_KEPT)
                runs = [run for run in self._runs.values() if not _is_written(run)]
                if not runs:
                    self._listener = None
                    return
            for run in runs:
                self._listen_for(run)
            self._closed.wait(LISTEN_S)

    def _listen_for(self, run: BulkRun) -> None:
        try:
            for command_id, command in commands_to(self._broker.store, run.id).items():
                problem: Problem | None = None
                try:
                    self._follow(run, command)
                except Problem as refused:
                    problem = refused
                reply_to(self._broker.store, run.id, command_id, problem)
        except Exception as error:  # this thread goes on: Redis may answer the next time
            logger.debug("commands to bulk action %s are not read: %s", run.id, error)
        _write(self._broker, run)

    def _tidy(self, most: int) -> None:
        idle = sorted((run for run in self._runs.values() if run.state not in BUSY), key=lambda run: run._touched)
        for run in idle:
            if monotonic() - run._touched > KEEP_S or len(self._runs) > most:
                del self._runs[run.id]


def runs_of(request: Request) -> BulkRuns:
    """Returns the bulk actions of the server that a request reached."""
    return serve_of(request).broker.part(BulkRuns)


def _not_counted(state: str) -> Problem:
    return Problem(409, f"this bulk action is {state}, so it cannot be started")


def _is_written(run: BulkRun) -> bool:
    """Whether a run has come to its end, and the other processes can see that."""
    return run._written is not None and run._written.state not in UNFINISHED


def _write(broker: ServeBroker, run: BulkRun) -> None:
    """Lets other processes see a run, if it has changed or was last written long ago."""
    view, is_first = run.view, run._tried == -inf
    if run._written in (view, None) and monotonic() - run._tried < WRITE_S:
        return
    could_be_seen, run._tried = is_first or run._written is not None, monotonic()
    try:
        write_view(broker.store, view)
    except (RedisError, OSError, OperationalError) as error:
        run._written = None
        if could_be_seen:
            logger.warning("other processes of the server do not see bulk action %s: %s", run.id, error)
    else:
        run._written = view


def _count(broker: ServeBroker, run: BulkRun) -> None:
    def progress(found: Progress) -> None:
        run.looked = found

    run.matched = take_snapshot(broker.store, run.selection, progress=progress, stop=run._stop.is_set)
    run.state = "stopped" if run.matched is None else "counted"


def _run(broker: ServeBroker, run: BulkRun) -> None:
    assert run.work is not None  # noqa: S101  # `start` has made it
    store = broker.store
    with audited_bulk(run.work, run.who):
        ended = run.work.run(store, stop=run._stop.is_set, announce=partial(revoke.announce_cancelled, broker.app))
    run.state = "done" if ended else "stopped"
