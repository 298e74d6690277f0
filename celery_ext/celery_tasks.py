"""What Celery knows of an app's tasks, and how it tells that one is revoked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery.signals import task_revoked
from kombu.log import get_logger

if TYPE_CHECKING:
    from celery import Celery

logger = get_logger(__name__)


def declares_chain(app: Any) -> bool:
    """Whether a task of an app has a delay chain."""
    return any(getattr(task, "delay_chain", None) is not None for task in tasks_of(app).values())


def tasks_of(app: Any) -> Mapping[str, Any]:
    """Returns the tasks of an app, which is finalized before; of one that refuses this, those that it has so far.

    Celery's own ``send_task`` does not finalize an app, whose tasks are unknown until then.
    """
    tasks: Mapping[str, Any] = app.tasks if app.autofinalize else app._tasks
    return tasks


def announce_revoked(app: "Celery", task: Any, request: Any, reason: str, dispatcher: Any = None) -> None:
    """Sets a result to ``REVOKED`` and sends signal and event, as a worker does when it discards a task.

    The task is cancelled in any case: if the result backend or the broker does not answer, that is only logged.

    Args:
        app: The app.
        task: The task, or None if this process does not know it.
        request: The task's request.
        reason: Text of the error in the result.
        dispatcher: A worker's event dispatcher; None for one in the name of the worker that has the request, if any.
    """
    try:
        backend = app.backend if task is None else task.backend
        store = not request.ignore_result or bool(task is not None and task.store_errors_even_if_ignored)
        backend.mark_as_revoked(request.id, reason, request=request, store_result=store)
        _send_event(app, request, dispatcher)
    except Exception:  # each backend has errors of its own
        logger.exception("task %s is cancelled, but its result or its event could not be written", request.id)
    if task is not None:
        task_revoked.send(sender=task, request=request, terminated=False, signum=None, expired=False)


def _send_event(app: "Celery", request: Any, dispatcher: Any) -> None:
    fields = {"uuid": request.id, "terminated": False, "signum": None, "expired": False}
    if dispatcher is not None:
        dispatcher.send("task-revoked", **fields)
    elif request.hostname and (app.conf.task_send_sent_event or app.conf.worker_send_task_events):
        # Only in the name of a worker: monitors take the sender of an event for a worker.
        with app.events.default_dispatcher(hostname=request.hostname) as own:
            own.send("task-revoked", **fields)
