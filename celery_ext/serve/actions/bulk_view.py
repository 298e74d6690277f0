"""A bulk action as every process of a server sees it, also one that another process has counted and runs."""

from secrets import token_urlsafe
from time import monotonic, sleep
from typing import Literal, NamedTuple

import msgspec

from celery_ext.serve.problems import Problem
from celery_ext.waiting.bulk import Action
from kombu_delayq.store import OperatorStore

#: States of an action that changes by itself.
BUSY = frozenset({"counting", "running"})
#: States of an action that may still change something.
UNFINISHED = BUSY | {"counted"}
#: A process writes the states of its unfinished actions at least so often. One that is silent for longer has ended.
WRITE_S, SILENT_S = 3.0, 20.0
#: For how long a word waits for its reply, and how often it is looked for, in s.
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
        state: ``counting``, ``counted`` (it waits for the word), ``running``, ``stopped``, ``done`` or ``failed``.
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
    action: Action
    queues: tuple[str, ...] | None
    from_ms: float
    to_ms: float
    task: str | None
    q: str | None
    state: str
    count: int | None
    as_of_ms: float | None
    looked: int
    to_look: int
    has_begun: bool
    done: int
    outcomes: dict[str, int]
    error: str


class Word(NamedTuple):
    """What a caller tells an action: to start, with the number of tasks that it has read, or to stop."""

    what: Literal["start", "stop"]
    confirmed: int = 0


class _Reply(msgspec.Struct):
    """Whether a word was followed: if not, the status, the sentence and the kind of the problem."""

    status: int = 200
    detail: str = ""
    kind: str = ""


def read(store: OperatorStore, run_id: str) -> RunView | None:
    """Returns an action of any process of the server; None if there is none."""
    found = store.shared_runs.read(run_id)
    if found is None:
        return None
    view = msgspec.msgpack.decode(found.state, type=RunView)
    if view.state in UNFINISHED and found.age_s > SILENT_S:
        error = "the process of the server that had it is gone; what is done stays done"
        return msgspec.structs.replace(view, state="failed", error=error)
    return view


def write(store: OperatorStore, view: RunView) -> None:
    """Lets the other processes of the server see an action."""
    store.shared_runs.write(view.id, msgspec.msgpack.encode(view))


def tell(store: OperatorStore, view: RunView, word: Word) -> RunView:
    """Tells an action of another process a word, and waits for the reply. Returns how the action is then.

    Raises:
        Problem: That of the reply; 503 if there is none.
    """
    word_id = token_urlsafe(9)
    store.shared_runs.say(view.id, word_id, msgspec.msgpack.encode(word))
    until = monotonic() + REPLY_S
    while (reply := store.shared_runs.reply_to(view.id, word_id)) is None:
        if monotonic() > until:
            detail = "the process of the server that has this bulk action does not answer; look at it again"
            raise Problem(503, detail, "answer-lost", headers={"Retry-After": "5"}, outcome="unknown")
        sleep(LOOK_S)
    found = msgspec.msgpack.decode(reply, type=_Reply)
    if found.status != 200:
        raise Problem(found.status, found.detail, found.kind)
    return read(store, view.id) or view


def words(store: OperatorStore, run_id: str) -> dict[str, Word]:
    """Returns what other processes tell an action of this one, by the ids to reply to."""
    told = store.shared_runs.words(run_id)
    return {word_id: msgspec.msgpack.decode(word, type=Word) for word_id, word in told.items()}


def reply(store: OperatorStore, run_id: str, word_id: str, problem: Problem | None) -> None:
    """Replies to a word of another process."""
    said = _Reply() if problem is None else _Reply(problem.status, problem.detail, problem.kind)
    store.shared_runs.reply(run_id, word_id, msgspec.msgpack.encode(said))
