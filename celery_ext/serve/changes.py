"""Changes a waiting task for a caller of a server: within its rights, and with a line in the audit."""

from contextlib import nullcontext

from celery_ext.serve import letters
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.service import Serve
from celery_ext.waiting import by_id, revoke
from celery_ext.waiting.by_id import Outcome
from kombu_delayq.audit import audited


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
        if not cancelled.messages and letters.find(serve.store, caller.may_read, task_id, serve.settings.dead_letters):
            word = "dead_letter"
        counts[word] += max(len(cancelled.messages), 1)
    return word
