"""Changes waiting tasks for a caller of a server: within its rights, and with a line in the audit."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

from celery_ext import waiting
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve
from celery_ext.waiting import (
    ActionName,
    BulkAction,
    DelayedTask,
    Elsewhere,
    Outcome,
    Sighting,
    by_id,
    places,
    revoke,
)
from kombu_delayq.audit import audited, ids_named
from kombu_delayq.store import Waiting

#: What a caller must be allowed to do, by what is done to each of many tasks.
BULK_ACTIONS: dict[ActionName, Action] = {
    "run_now": Action.RUN,
    "reschedule": Action.RESCHEDULE,
    "cancel": Action.CANCEL,
}


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


def allowed(caller: Caller, action: Action) -> Callable[[Waiting], bool]:
    """Returns a function that says of a waiting message whether a caller may do something to it."""

    def may(message: Waiting) -> bool:
        task = DelayedTask(message)
        return caller.may(action, queue=task.queue, task=task.name or "")

    return may


def find_elsewhere(serve: Serve, caller: Caller, task_id: str) -> tuple[Elsewhere, Sighting] | tuple[None, None]:
    """Returns where a task is that does not wait, if a feature knows, and the caller may see it there."""
    only = None if caller.unlimited else allowed(caller, Action.READ)
    for place in places(serve.settings.dead_letters) if task_id else ():
        if found := place.find(serve.store, [task_id], only):
            return place, found[task_id]
    return None, None


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
