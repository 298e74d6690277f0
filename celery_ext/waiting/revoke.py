"""What the world learns of a task that was cancelled while it waited: its result, the signal, the event."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from celery.signals import task_revoked
from kombu.log import get_logger
from kombu.serialization import prepare_accept_content

from celery_ext.waiting.delayed_task import DelayedTask

if TYPE_CHECKING:
    from celery import Celery

logger = get_logger(__name__)

#: Reason that the result gives, as ``TaskRevokedError``.
REASON = "cancelled while it was delayed"


def declares_chain(app: Any) -> bool:
    """Whether a task of an app has a delay chain."""
    tasks = app.tasks if app.autofinalize else app._tasks  # which such an app may not be asked for yet
    return any(getattr(task, "delay_chain", None) is not None for task in tasks.values())


def mark_revoked(app: "Celery", task: DelayedTask, dispatcher: Any = None) -> None:
    """Lets the world know of a task that was cancelled while it waited.

    Args:
        app: The app whose result backend knows the task.
        task: What was cancelled; what is no task is let be.
        dispatcher: A worker's event dispatcher; without one no event is sent.
    """
    try:
        # As a worker of this app reads it: the chord that it belongs to may be in a pickle.
        task = replace(task, accept={*task.accept, *prepare_accept_content(app.conf.accept_content or ())})
        if task.name is not None:
            announce_revoked(app, app.tasks.get(task.name), context_of(task), REASON, dispatcher)
    except Exception:  # the message is gone already, and those after it must be told of too
        logger.exception("task %s is cancelled, but nobody knows", task.id)


def announce_revoked(app: "Celery", task: Any, request: Any, reason: str, dispatcher: Any = None) -> None:
    """Marks a result as ``REVOKED``, and sends the signal and the event, as a worker that discards a task does.

    A result backend or a broker that does not answer is logged: the task is cancelled all the same.

    Args:
        app: The app.
        task: The task, or None where this process does not know it.
        request: Its request.
        reason: What the result says.
        dispatcher: A worker's event dispatcher; None for one in the name of the worker whose request it is, if any.
    """
    try:
        backend = app.backend if task is None else task.backend
        store = not request.ignore_result or bool(task is not None and task.store_errors_even_if_ignored)
        backend.mark_as_revoked(request.id, reason, request=request, store_result=store)
        _send_event(app, request, dispatcher)
    except Exception:  # each backend has errors of its own
        logger.exception("task %s is cancelled, but not all of its observers know", request.id)
    if task is not None:
        task_revoked.send(sender=task, request=request, terminated=False, signum=None, expired=False)


def context_of(task: DelayedTask) -> Any:
    """Returns the request that a task would have had."""
    embed = {name: task.embed.get(name) for name in ("callbacks", "errbacks", "chain", "chord")}
    return Context(
        {
            **task.headers,
            **embed,
            "id": task.id,
            "args": task.args,
            "kwargs": task.kwargs,
            "properties": task.properties,
        }
    )


def _send_event(app: "Celery", request: Any, dispatcher: Any) -> None:
    fields = {"uuid": request.id, "terminated": False, "signum": None, "expired": False}
    if dispatcher is not None:
        dispatcher.send("task-revoked", **fields)
    elif request.hostname and (app.conf.task_send_sent_event or app.conf.worker_send_task_events):
        # Only in the name of a worker: whoever hears the event takes its sender for one.
        with app.events.default_dispatcher(hostname=request.hostname) as own:
            own.send("task-revoked", **fields)
