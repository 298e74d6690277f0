"""Whether the task that runs here is to stop. The task asks; nobody interrupts it."""

from typing import Any, Literal

from celery._state import get_current_worker_task
from celery.exceptions import Ignore, Reject
from celery.signals import task_postrun
from celery.utils.threads import get_ident

from celery_ext.celery_tasks import announce_revoked
from celery_ext.stopping.listener import Listener, RunningTask, listener_of
from celery_ext.stopping.shutdown import has_to_stop

#: Why a task is to stop: ``cancelled``, or its worker stops and its grace is nearly over.
Reason = Literal["cancelled", "worker_stops"]

#: Text of the ``TaskRevokedError`` that the result becomes.
REASON = "cancelled while it ran"


class TaskCancelled(Ignore):
    """A running task stops because it was cancelled. Its result becomes ``REVOKED``, its message is acknowledged."""


class _Run:
    """A run of a task that asks.

    Args:
        task: The task.
        request: Its request.
    """

    __slots__ = ("acks_late", "listener", "request", "running")

    def __init__(self, task: Any, request: Any) -> None:
        self.acks_late, self.request = bool(task.acks_late), request
        self.listener: Listener = listener_of(task.app)
        self.running: RunningTask = self.listener.add(request.id)


#: The run in each thread or greenlet.
_runs: dict[Any, _Run] = {}


def cancelled() -> Reason | None:
    """Says whether the task that runs here is to stop, and why. Cheap enough for each turn of a loop.

    From its first call on, ``cancel`` and ``revoke(terminate=True)`` reach the task, in every pool. So call it once
    before long work, too.

    Returns:
        One of these words; None while the task may go on, and outside of a worker's task.

        - ``cancelled``: ``celery_ext.cancel`` named its id, or ``revoke`` with ``terminate``.
        - ``worker_stops``: its worker was told to stop, and ``delayq_shutdown_grace`` is over, or four fifths of
          ``worker_soft_shutdown_timeout``.
    """
    run = _runs.get(get_ident()) or _begin()
    if run is not None and run.running.is_cancelled:
        return "cancelled"
    return "worker_stops" if run is not None and has_to_stop() else None


def check_cancelled() -> None:
    """Ends the task that runs here if it is to stop; as cheap as ``cancelled``.

    A task that is acknowledged early goes on when its worker stops: its message could not come back.

    Raises:
        TaskCancelled: It was cancelled. Its result becomes ``REVOKED`` when this error leaves the task.
        celery.exceptions.Reject: Its worker stops, and it has ``acks_late``. Its message goes back to its queue.
    """
    run = _runs.get(get_ident()) or _begin()
    if run is None:
        return
    if run.running.is_cancelled:
        raise TaskCancelled(REASON)
    if run.acks_late and has_to_stop():
        raise Reject("the worker stops", requeue=True)


def _begin() -> _Run | None:
    """Returns the run of the task that the worker runs here, which may have called the current one; None without."""
    task: Any = get_current_worker_task()
    request = None if task is None else task.request_stack.top
    if request is None or request.id is None or request.called_directly or request.is_eager:
        return None
    task_postrun.connect(_end, weak=False, dispatch_uid="delayq-stop")
    run = _runs[get_ident()] = _Run(task, request)
    return run


def _end(task: Any, retval: Any = None, **_: Any) -> None:
    """Forgets the run that ends. Where it ends because it was cancelled, its result becomes ``REVOKED``."""
    run = _runs.get(get_ident())
    if run is None or run.request is not task.request_stack.top:
        return  # another task that this one has called
    del _runs[get_ident()]
    run.listener.remove(run.running)
    if isinstance(retval, TaskCancelled):
        announce_revoked(task.app, task, run.request, REASON)
