"""Finds and changes the waiting messages of a broker by task id, in any queue. Knows the store, and no app."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil, inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from celery.utils.functional import chunks
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from kombu_delayq.errors import AnswerLost, UnreadableMessage
from kombu_delayq.message import with_eta
from kombu_delayq.store import MAX_DUPLICATES, Change, NotSearched, Waiting, is_step

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

#: What became of a task: ``cancelled`` (it will never run), ``chain_ended`` (no step of its delay chain waits, and none
#: will; a step that runs now is the last), ``rescheduled``, ``transferred`` (it is in its queue now), ``not_delayed``
#: (it does not wait: it is unknown, was transferred before, or has run), ``unreadable`` (its message cannot be
#: rewritten, so it stays as it is), ``dead_letter`` (it has failed for good, and a replay would run all steps of its
#: chain; only a cancel looks for these), ``asked_to_stop`` (it runs, and asks ``cancelled``).
Outcome = Literal[
    "cancelled",
    "chain_ended",
    "asked_to_stop",
    "rescheduled",
    "transferred",
    "not_delayed",
    "unreadable",
    "dead_letter",
]

#: How many ids go into one call, so that Redis stays responsive.
IDS_A_CALL = 200
#: How often ``cancel_only`` looks for messages that another client has changed meanwhile.
TRIES = 3
#: How many messages of a queue are read in one call.
PAGE = 100


def get(store: "DelayStore", ids: Iterable[str]) -> Iterator[tuple[str, list[Waiting]]]:
    """Yields each id with its waiting messages: none, one, or several if tasks share the id.

    Raises:
        NotSearched: A node of a cluster is away, and not all ids were found elsewhere. Those that were have been
            yielded before.
    """
    queues = store.queues.names()
    for part in _parts(ids):
        found, away = _look_up(store, queues, part)
        yield from ((task_id, found.get(task_id, [])) for task_id in part if away is None or task_id in found)
        if away is not None:
            raise away


def _look_up(
    store: "DelayStore", queues: Sequence[str], ids: Sequence[str]
) -> tuple[dict[str, list[Waiting]], NotSearched | None]:
    """Returns the waiting messages of some ids, and an error if a node is away that may have those of the others."""
    try:
        return store.lookup.get(queues, ids), None
    except NotSearched as error:
        return error.found, error


#: Says which of the messages of an id are meant.
Only = Callable[[Waiting], bool]


def _any(message: Waiting) -> bool:
    return True


class Cancelled(NamedTuple):
    """What a cancel did with an id.

    Attributes:
        id: The task id.
        messages: The messages that were removed.
        is_chain: Whether Redis knows a delay chain by this id. If so, the cancel has ended the chain.
        elsewhere: What became of the task, if it was found where it stays.
    """

    id: str
    messages: list[Waiting]
    is_chain: bool = False
    elsewhere: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """What became of the task."""
        if self.messages:
            return "cancelled"
        return self.elsewhere or ("chain_ended" if self.is_chain else "not_delayed")


def cancel(store: "DelayStore", ids: Iterable[str], *, chains_in_use: bool = False) -> Iterator[Cancelled]:
    """Removes the waiting messages of some ids. If a step of a delay chain runs just now, ends the chain.

    Args:
        store: The broker's store.
        ids: Task ids.
        chains_in_use: Whether the caller knows of tasks with a delay chain.

    Raises:
        AnswerLost: Redis did not answer. All known removals have been yielded before.
        NotSearched: A node of a cluster is away and has run nothing, and not all ids were found elsewhere. All removals
            have been yielded before.
    """
    for part in _parts(ids):
        found: dict[str, list[Waiting]] = {}
        chains: set[str] = set()
        unsearched, away = {*part}, list[NotSearched]()
        try:
            with naming_ids("cancelled", part), _noting(away):
                unsearched = store.lookup.cancel_at_once(part, found)
            away = [error for error in away if error.may_have_run]  # otherwise the next search tells
            # A task without a chain whose message was removed everywhere needs no more. It takes one round trip.
            left = [one for one in part if one in unsearched or one not in found or any(map(is_step, found[one]))]
            if left:
                # The ids are refused before the search: a step that comes meanwhile, even in a new queue, is found or
                # refused. A step that is stored at the moment has noted its chain.
                queues, chains = store.chains.cancel_chains(left, in_use=chains_in_use)
                searched = [one for one in left if one in unsearched | chains or one in found]
                _remove(store, queues, searched, found, away)
            _check_found(away, found)
        except Exception as error:
            yield from (Cancelled(task_id, messages) for task_id, messages in found.items())
            if not isinstance(error, AnswerLost):
                _check_found(away, found)  # an answer may have been lost before
            raise
        yield from (Cancelled(task_id, found.get(task_id, []), task_id in chains) for task_id in part)


def cancel_only(store: "DelayStore", ids: Iterable[str], only: Only) -> Iterator[Cancelled]:
    """Removes those waiting messages of some ids that are meant, and leaves others of the same ids alone.

    A step of a delay chain that is removed ends its chain. A chain of which no step waits is not ended: nobody knows
    whether it is meant.

    Raises:
        AnswerLost, NotSearched: As of ``cancel``.
    """
    for task_id, messages in get(store, ids):
        removed: list[Waiting] = []
        left = [message for message in messages if only(message)]
        for _ in range(TRIES):
            removed += _discarded(store, task_id, left)
            found, _ = _look_up(store, store.queues.names(), [task_id])
            left = [message for message in found.get(task_id, ()) if only(message)]
            if not left:
                break
        yield Cancelled(task_id, removed)


def _discarded(store: "DelayStore", task_id: str, messages: Iterable[Waiting]) -> list[Waiting]:
    """Removes messages of an id that are still as they were read. Returns these."""
    by_queue: defaultdict[str, list[Waiting]] = defaultdict(list)
    for message in messages:
        by_queue[message.queue].append(message)
    removed: list[Waiting] = []
    for queue, found in by_queue.items():
        with naming_ids("cancelled", [task_id]):
            words = store.lookup.discard(queue, [(one, task_id if is_step(one) else "") for one in found])
        removed += [one for one, word in zip(found, words, strict=True) if word == "cancelled"]
    return removed


def _remove(
    store: "DelayStore",
    queues: list[str],
    ids: Sequence[str],
    found: dict[str, list[Waiting]],
    away: list[NotSearched],
) -> None:
    """Removes the messages of ids that are refused; adds them to ``found``, and errors of nodes to ``away``."""
    full = list(ids)
    more = {task_id: found.pop(task_id) for task_id in full if task_id in found}
    while full:
        try:
            with naming_ids("cancelled", full, more), _noting(away):
                store.lookup.cancel(queues, full, more)
        finally:
            for task_id, messages in more.items():
                found[task_id] = [*found.get(task_id, ()), *messages]
        full = [task_id for task_id, messages in more.items() if len(messages) >= MAX_DUPLICATES]
        # Redis takes the refusal of an id back if one call finds messages, but no step. These ids have steps, too.
        mixed = [task_id for task_id in more if {True, False} == set(map(is_step, found[task_id]))]
        if mixed:
            queues = store.chains.cancel_chains(mixed).queues
            full = list(dict.fromkeys([*full, *mixed]))
        more = {}


@contextmanager
def _noting(away: list[NotSearched]) -> Iterator[None]:
    try:
        yield
    except NotSearched as error:
        away.append(error)


def _check_found(away: Iterable[NotSearched], found: Collection[str]) -> None:
    """Raises an error of nodes that are away if an id was not found elsewhere: first, if they may have removed it."""
    for error in sorted(away, key=lambda error: error.may_have_run, reverse=True):
        missing = [task_id for task_id in error.ids if task_id not in found]
        if missing and error.may_have_run:
            raise AnswerLost("cancelled", missing) from error
        if missing:
            raise error


def reschedule(
    store: "DelayStore", ids: Iterable[str], due_ms: float | None, only: Only = _any, *, shift_s: float | None = None
) -> Iterator[tuple[str, Outcome]]:
    """Changes when tasks are due. If the new time is past, transfers the tasks at once.

    Args:
        store: The broker's store.
        ids: Task ids.
        due_ms: New due time, ms since the epoch.
        only: Says which of the messages of an id are meant.
        shift_s: Instead of ``due_ms``: by how many s each task is to be due later; earlier if it is negative.

    Raises:
        DelayTooLong: A time is farther away than the transport option ``max_delay`` allows. With ``shift_s`` the tasks
            that were yielded before are changed.
        AnswerLost: Redis did not answer while it transferred tasks whose new time is past.
        NotSearched: As of ``get``, after the tasks that were found are changed.
    """
    now_ms = store.now_ms()

    def due_of(message: Waiting) -> float:
        new_ms = message.due_ms + (shift_s or 0) * 1000 if due_ms is None else due_ms
        store.options.check_delay((new_ms - now_ms) / 1000)
        return new_ms

    if due_ms is not None:  # before anything is looked for
        store.options.check_delay((due_ms - now_ms) / 1000)
    return _change(store, ids, due_of, only, runs_now=False)


def run_now(store: "DelayStore", ids: Iterable[str], only: Only = _any) -> Iterator[tuple[str, Outcome]]:
    """Transfers tasks to their queues before they are due.

    They have no eta then: a worker whose clock is behind that of Redis would hold them until it.

    Args:
        store: The broker's store.
        ids: Task ids.
        only: Says which of the messages of an id are meant.

    Raises:
        AnswerLost: Redis did not answer.
        NotSearched: As of ``get``, after the tasks that were found are sent.
    """
    now_ms = store.now_ms()
    return _change(store, ids, lambda _: now_ms, only, runs_now=True)


def change(
    store: "DelayStore", queue: str, messages: Sequence[Waiting], dues_ms: Iterable[float], *, runs_now: bool
) -> list[str]:
    """Gives messages of one queue new due times, and pushes those whose new time is past to the queue.

    Args:
        store: The broker's store.
        queue: The queue.
        messages: The messages.
        dues_ms: The new due time of each, ms since the epoch.
        runs_now: Whether to push all, without an eta.

    Returns:
        A word for each message: ``rescheduled`` or ``transferred``; or, with nothing changed, ``not_delayed``,
        ``changed`` or ``unreadable``.

    Raises:
        AnswerLost: Redis did not answer while it pushed messages.
    """
    words, changes = ["unreadable"] * len(messages), dict[int, Change]()
    for at, (message, due_ms) in enumerate(zip(messages, dues_ms, strict=False)):
        with suppress(UnreadableMessage):
            changes[at] = Change(message, due_ms, with_eta(message.body or b"", None if runs_now else due_ms))
    if changes and not runs_now:
        for at, word in zip(changes, store.lookup.reschedule(queue, list(changes.values())), strict=True):
            words[at] = word
        changes = {at: one for at, one in changes.items() if words[at] == "due"}
    if changes:
        pushed = list(changes.values())
        with naming_ids("sent to their queues", [one.message.id for one in pushed]):
            for at, word in zip(changes, store.lookup.run_now(queue, pushed), strict=True):
                words[at] = word
    return words


def browse(store: "DelayStore", queue: str, from_ms: float = -inf, to_ms: float = inf) -> Iterator[Waiting]:
    """Yields waiting messages of a queue in the order of their due times, a page at a time.

    It is no snapshot: it may or may not yield a message that comes or goes meanwhile. It yields a message that waits
    all the time exactly once.
    """
    page = None
    while page is None or page.more:
        page = store.scan.browse(queue, page, from_ms, to_ms, PAGE)
        yield from page.messages


@contextmanager
def naming_ids(done: str, ids: Sequence[str], told: Collection[str] = ()) -> Iterator[None]:
    """Names the tasks when the answer of Redis is lost, but those that Redis has told; the error of redis-py does not.

    If Redis has told all, the error stays as it is.
    """
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        unknown = [one for one in ids if one not in told]
        if not unknown:
            raise
        raise AnswerLost(done, unknown) from error


def _change(
    store: "DelayStore", ids: Iterable[str], due_of: Callable[[Waiting], float], only: Only, *, runs_now: bool
) -> Iterator[tuple[str, Outcome]]:
    queues = store.queues.names()
    for part in _parts(ids):
        outcomes: dict[str, Outcome] = {}
        found, away = _look_up(store, queues, part)
        known = part if away is None else [*found]
        missed: set[tuple[str, str]] = set()  # ids whose message was not in a layout any more where it was found
        given: defaultdict[str, _Given] = defaultdict(lambda: defaultdict(set))
        while found:
            again: dict[str, None] = {}  # each id once: looking it up finds all its messages
            for queue, own in _by_queue(found, only).items():
                messages = [one for _, one in own]
                words = change(store, queue, messages, _new_dues(messages, due_of, given[queue]), runs_now=runs_now)
                for (identity, message), word in zip(own, words, strict=True):
                    # Another client has just changed the message, or it has moved, such as from a journal to Redis.
                    if word == "changed" or (word == "not_delayed" and (identity, message.layout) not in missed):
                        again[identity] = None
                    if word == "not_delayed":
                        missed.add((identity, message.layout))
                    elif word == "unreadable":
                        outcomes.setdefault(identity, "unreadable")
                    elif word != "changed":
                        outcomes[identity] = word  # type: ignore[assignment]  # the words of the Lua scripts
            found = _look_up(store, queues, list(again))[0] if again else {}
        yield from ((task_id, outcomes.get(task_id, "not_delayed")) for task_id in known)
        if away is not None:
            raise away


#: The new times of the messages of a queue, ms since the epoch, by their ids.
_Given = defaultdict[str, set[float]]


def _new_dues(messages: Sequence[Waiting], due_of: Callable[[Waiting], float], given: _Given) -> list[float]:
    """Returns the new time of each message, and notes it.

    One that is looked at again may have its new time, where the answer to an earlier call was lost; it keeps that.
    """
    dues = [one.due_ms if one.due_ms in given[one.id] else due_of(one) for one in messages]
    for one, due_ms in zip(messages, dues, strict=True):
        given[one.id].update((due_ms, ceil(due_ms)))
    return dues


def _by_queue(found: dict[str, list[Waiting]], only: Only) -> dict[str, list[tuple[str, Waiting]]]:
    """Returns the messages that are meant, each with the id under which it was found."""
    by_queue: defaultdict[str, list[tuple[str, Waiting]]] = defaultdict(list)
    for identity, messages in found.items():
        for message in filter(only, messages):
            by_queue[message.queue].append((identity, message))
    return by_queue


def _parts(ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields ids in parts of ``IDS_A_CALL``, without duplicates in a part."""
    return (tuple(dict.fromkeys(part)) for part in chunks(iter(ids), IDS_A_CALL))
