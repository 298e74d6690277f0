"""Changes waiting tasks and dead letters for a caller of a server: within its rights, and with a line in the audit."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import inf
from typing import Any, Literal, NamedTuple

from celery_ext import waiting
from celery_ext.dead_letters import Choice, Cursor, DeadLetter, LetterAction, routes
from celery_ext.dead_letters import letters as letters_of
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import Serve
from celery_ext.waiting import ActionName, BulkAction, DelayedTask, Outcome, by_id, places, revoke
from kombu_delayq.audit import audited, ids_named
from kombu_delayq.store import DelayStore, Waiting

#: What a caller must be allowed to do, by what is done to each of many tasks.
BULK_ACTIONS: dict[ActionName, Action] = {
    "run_now": Action.RUN,
    "reschedule": Action.RESCHEDULE,
    "cancel": Action.CANCEL,
}


def check_letter_queue(store: DelayStore, queue: str, more: tuple[str, ...] = ()) -> None:
    """Raises a problem, 404, for a queue that is none of dead letters: its messages are tasks that workers run."""
    if queue not in {*letters_of.queues(store), *more}:
        raise Problem(404, f"no dead letters were put into {queue!r}: it is no queue of dead letters", "unknown-queue")


def find_letter(
    store: DelayStore, may_see: Callable[[str, str], bool], task_id: str, more: tuple[str, ...] = ()
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


def letter_queues(store: DelayStore, more: tuple[str, ...] = ()) -> dict[str, int]:
    """Returns the queues of dead letters with their lengths: those that Redis knows, and ``more``."""
    names = sorted({*store.queues.of_letters(), *more})
    return {name: count_letters(store, name) for name in names}


def count_letters(store: DelayStore, queue: str) -> int:
    """Returns how many dead letters a queue holds."""
    return letters_of.count(store, queue)


def letter_cursor(given: str | None) -> Cursor | None:
    """Returns where a page of dead letters begins; None for the first. Raises a problem, 400, for what is no cursor."""
    try:
        return Cursor.parse(given) if given else None
    except ValueError as error:
        raise bad_request(str(error), "bad-cursor") from None


class LettersChanged(NamedTuple):
    """What became of dead letters.

    Attributes:
        counts: How many were ``replayed`` or ``dropped``; and how many stay as ``unroutable``, for nobody knows their
            queue.
        met: Ids of those that the caller may change.
        more: Whether it has ended before all of them had left.
    """

    counts: Counter[str]
    met: set[str]
    more: bool = False


#: A call that replays at a pace ends after so long, in s. A caller that stops a replay waits for that end; so does a
#: proxy.
PACED_S = 5.0


def replay(serve: Serve, caller: Caller, queue: str, choice: Choice, rate: float | None = None) -> LettersChanged:
    """Sends dead letters back to the queues from which they came, within the rights of a caller.

    Letters that are buried meanwhile stay. Others wait until this round through the queue is over.

    Args:
        serve: The server.
        caller: Who does it. A letter whose queue is none of its queues stays.
        queue: A queue of dead letters.
        choice: Which letters.
        rate: Most letters a second, ``LEAST_RATE`` or more; then it ends after ``PACED_S``. None for no limit.
    """
    with serve.broker.channel() as channel:
        send = routes.sending(channel, serve.broker.app)
        return _change_letters(serve, caller, Action.REPLAY, queue, choice, send, caller.may_return, rate)


def drop(serve: Serve, caller: Caller, queue: str, choice: Choice) -> LettersChanged:
    """Removes dead letters, within the rights of a caller. The arguments are those of ``replay``."""
    return _change_letters(serve, caller, Action.DROP, queue, choice, letters_of.away, lambda letter: True)


def pause_queue(serve: Serve, caller: Caller, queue: str) -> Literal["paused", "unchanged"]:
    """Lets consumers take nothing more from a queue, within the rights of a caller.

    Raises:
        Problem: The caller may not (403), or nobody knows the queue (404).
    """
    _check_pause(caller, queue)
    if not serve.broker.has_queue(queue):
        raise Problem(404, f"nobody has used a queue {queue!r}", "unknown-queue")
    return waiting.pause_queue(serve.store, queue, caller.name)


def resume_queue(serve: Serve, caller: Caller, queue: str) -> Literal["resumed", "unchanged"]:
    """Lets consumers take from a paused queue again. Raises a problem, 403, for a caller who may not."""
    _check_pause(caller, queue)
    return waiting.resume_queue(serve.store, queue, caller.name)


def _check_pause(caller: Caller, queue: str) -> None:
    caller.check(Action.PAUSE, queue=queue)
    if "*" not in caller.tasks:
        raise Problem(403, "a token that names tasks cannot pause: a queue rests with all that is in it", "not-allowed")


def _change_letters(
    serve: Serve,
    caller: Caller,
    action: Action,
    queue: str,
    choice: Choice,
    act: LetterAction,
    may_go: Callable[[DeadLetter], bool],
    rate: float | None = None,
) -> LettersChanged:
    met, lasts_s = set[str](), inf if rate is None else PACED_S

    def is_chosen(letter: DeadLetter) -> bool:
        chosen = choice(letter) and caller.may(action, task=letter.name or "") and may_go(letter)
        if chosen:
            met.add(letter.id)
        return chosen

    what = ids_named(sorted(choice.ids)) if choice.ids else {"all": not choice.narrow}
    counts, more = letters_of.change(
        serve.store, queue, is_chosen, act, str(action), what, who=caller.name, rate=rate, lasts_s=lasts_s
    )
    return LettersChanged(counts, met, more)


def allowed(caller: Caller, action: Action) -> Callable[[Waiting], bool]:
    """Returns a function that says of a waiting message whether a caller may do something to it."""

    def may(message: Waiting) -> bool:
        task = DelayedTask(message)
        return caller.may(action, queue=task.queue, task=task.name or "")

    return may


def waiting_tasks(serve: Serve, caller: Caller, task_id: str, action: Action) -> list[DelayedTask]:
    """Returns the waiting tasks of an id to which a caller may do something, the next due first.

    Those that it may not even see do not exist for it.

    Raises:
        Problem: 403: the caller may only see them.
    """
    [(_, messages)] = by_id.get(serve.store, [task_id])
    messages.sort(key=lambda message: message.due_ms)
    found = list(filter(allowed(caller, action), messages))
    if not found:
        for seen in map(DelayedTask, filter(allowed(caller, Action.READ), messages)):
            caller.check(action, queue=seen.queue, task=seen.name or "")
    return list(map(DelayedTask, found))


def change_task(serve: Serve, caller: Caller, doing: BulkAction, task_id: str) -> Outcome:
    """Changes a task as ``change_ticked`` does, and returns what became of it.

    One to be cancelled may turn out to be a dead letter that the caller sees.
    """
    word: Outcome
    [word] = change_ticked(serve, caller, doing, [task_id])
    return word


def change_ticked(serve: Serve, caller: Caller, doing: BulkAction, ids: Sequence[str]) -> Counter[Any]:
    """Changes the tasks of some ids, as far as they are the caller's. Returns how many tasks had each outcome.

    Args:
        serve: The server.
        caller: Who does it.
        doing: What is done to each.
        ids: Their ids, each once.

    Raises:
        DelayTooLong: The new time is farther away than the transport option ``max_delay`` allows.
    """
    store, action = serve.store, BULK_ACTIONS[doing.name]
    with audited(str(action), ids_named(ids), who=caller.name) as counts:
        if doing.due_ms is not None:
            counts.update(word for _, word in by_id.reschedule(store, ids, doing.due_ms, allowed(caller, action)))
        elif action is Action.RUN:
            counts.update(word for _, word in by_id.run_now(store, ids, allowed(caller, action)))
        else:
            only, of = None if caller.unlimited else allowed(caller, action), places(serve.settings.dead_letters)
            done = revoke.cancel(lambda: nullcontext(store), ids, serve.broker.app, only=only, places=of)
            for cancelled in done:
                counts[cancelled.outcome] += max(len(cancelled.messages), 1)
    return counts
