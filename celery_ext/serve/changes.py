"""Changes waiting tasks and dead letters for a caller of a server: within its rights, and with a line in the audit."""

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import nullcontext
from datetime import datetime
from typing import NamedTuple

from celery_ext.dead_letters import DeadLetter
from celery_ext.dead_letters import letters as letters_of
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve
from celery_ext.waiting import Outcome, by_id, revoke
from kombu_delayq.audit import audited, ids_named
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.dead_letters import Letter


def check_letter_queue(store: OperatorStore, queue: str, more: tuple[str, ...] = ()) -> None:
    """Raises a problem, 404, for a queue that is none of dead letters: its messages are tasks that workers run."""
    if queue not in {*letters_of.queues(store), *more}:
        raise Problem(404, f"no dead letters were put into {queue!r}: it is no queue of dead letters", "unknown-queue")


def find_letter(
    store: OperatorStore, may_see: Callable[[str, str], bool], task_id: str, more: tuple[str, ...] = ()
) -> DeadLetter | None:
    """Returns the dead letter of an id; None if there is none among the latest that the caller may see.

    Args:
        store: The broker's store.
        may_see: Whether the caller may see a task: its queue, and its name.
        task_id: The id.
        more: Names of queues of dead letters, beside those that Redis knows.
    """
    found = (letter for letter in letters_of.latest(store, more) if letter.id == task_id)
    return next((letter for letter in found if may_see(letter.buried_in, letter.name or "")), None)


def letter_queues(store: OperatorStore, more: tuple[str, ...] = ()) -> dict[str, int]:
    """Returns the queues of dead letters with their lengths: those that Redis knows, and ``more``."""
    names = sorted({*store.figures.dead_letter_queues(), *more})
    return {name: count_letters(store, name) for name in names}


def count_letters(store: OperatorStore, queue: str) -> int:
    """Returns how many dead letters a queue holds."""
    return sum(store.letters.lists(queue).values())


def letters_page(store: OperatorStore, queue: str, skip: int, limit: int) -> list[DeadLetter]:
    """Returns dead letters of a queue, priority by priority, the oldest first, after ``skip`` of them."""
    found: list[DeadLetter] = []
    for key, length in store.letters.lists(queue).items():
        if skip >= length:
            skip -= length
            continue
        wanted = min(limit - len(found), length - skip)
        found += (DeadLetter(queue, message) for message in store.letters.page(key, skip, wanted))
        skip = 0
        if len(found) >= limit:
            break
    return found


class LettersChanged(NamedTuple):
    """What became of dead letters.

    Attributes:
        counts: How many were ``replayed`` or ``dropped``; and how many stay as ``unroutable``, for nobody knows their
            queue.
        met: Ids of those that the caller may change.
    """

    counts: Counter[str]
    met: set[str]


def replay(serve: Serve, caller: Caller, queue: str, ids: Collection[str] | None) -> LettersChanged:
    """Sends dead letters back to the queues from which they came, within the rights of a caller.

    Letters that are buried meanwhile stay. Others wait until this round through the queue is over.

    Args:
        serve: The server.
        caller: Who does it. A letter whose queue is none of its queues stays.
        queue: A queue of dead letters.
        ids: Ids of the letters; None for all.
    """
    with serve.broker.channel() as channel:
        exchanges = (known.exchange for known in serve.broker.app.amqp.queues.values())
        fanouts = {exchange.name for exchange in exchanges if exchange and exchange.type == "fanout"}
        route = letters_of.route_of(channel, fanouts)

        def send(letter: DeadLetter) -> Letter | None:
            to = route(letter)
            return None if to is None or to == queue else letters_of.to_queue(letter, to, as_before=True)

        return _change_letters(serve, caller, Action.REPLAY, queue, ids, send, caller.may_return)


def drop(serve: Serve, caller: Caller, queue: str, ids: Collection[str] | None) -> LettersChanged:
    """Removes dead letters, within the rights of a caller. The arguments are those of ``replay``."""
    return _change_letters(serve, caller, Action.DROP, queue, ids, letters_of.away, lambda letter: True)


def _change_letters(
    serve: Serve,
    caller: Caller,
    action: Action,
    queue: str,
    ids: Collection[str] | None,
    act: Callable[[DeadLetter], Letter | None],
    may_go: Callable[[DeadLetter], bool],
) -> LettersChanged:
    named, met = frozenset(ids or ()), set[str]()

    def is_chosen(letter: DeadLetter) -> bool:
        chosen = (ids is None or letter.id in named) and caller.may(action, task=letter.name or "") and may_go(letter)
        if chosen:
            met.add(letter.id)
        return chosen

    newest = _look(serve.store, queue, is_chosen)
    unroutable: set[bytes] = set()

    def decide(letter: DeadLetter) -> Letter:
        if not is_chosen(letter):
            return letters_of.back(letter)
        if (decided := act(letter)) is None:
            unroutable.add(letter.message)
            return letters_of.back(letter)
        return decided

    what = {"queue": queue, **({"all": True} if ids is None else ids_named(sorted(ids)))}
    with audited(str(action), what, who=caller.name) as counts:
        for letter, decided in letters_of.replay(serve.store, queue, decide, newest) if met else ():
            if decided.to != "back":
                counts["replayed" if action is Action.REPLAY else "dropped"] += 1
            elif letter.message in unroutable:
                counts["unroutable"] += 1
    return LettersChanged(counts, met)


def _look(store: OperatorStore, queue: str, look_at: Callable[[DeadLetter], object]) -> datetime | None:
    """Looks at all letters of a queue. Returns when the newest was buried; None if none has a time."""
    newest: datetime | None = None
    for letter in letters_of.browse(store, queue):
        look_at(letter)
        if letter.at is not None:
            newest = max(letter.at, newest or letter.at)
    return newest


def run(serve: Serve, caller: Caller, task_id: str) -> Outcome:
    """Sends a task to its queue now."""
    with audited("run", {"id": task_id}, who=caller.name) as counts:
        [(_, word)] = by_id.run_now(serve.store, [task_id], caller.mine(Action.RUN))
        counts[word] += 1
    return word


def reschedule(serve: Serve, caller: Caller, task_id: str, due_ms: float) -> Outcome:
    """Changes when a task is due, in ms since the epoch.

    Raises:
        DelayTooLong: The time is farther away than the transport option ``max_delay`` allows.
    """
    with audited("reschedule", {"id": task_id}, who=caller.name) as counts:
        [(_, word)] = by_id.reschedule(serve.store, [task_id], due_ms, caller.mine(Action.RESCHEDULE))
        counts[word] += 1
    return word


def cancel(serve: Serve, caller: Caller, task_id: str) -> Outcome:
    """Cancels a task, and ends its delay chain. It may turn out to be a dead letter that the caller sees."""
    only = None if caller.unlimited else caller.mine(Action.CANCEL)
    with audited("cancel", {"id": task_id}, who=caller.name) as counts:
        [cancelled] = revoke.cancel(lambda: nullcontext(serve.store), [task_id], serve.broker.app, only=only)
        word = cancelled.outcome
        if not cancelled.messages and find_letter(serve.store, caller.may_read, task_id, serve.settings.dead_letters):
            word = "dead_letter"
        counts[word] += max(len(cancelled.messages), 1)
    return word
