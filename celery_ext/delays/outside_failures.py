"""Notices failures that a task's own process cannot handle: a hard time limit, or the loss of the process."""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import Reject, TaskPredicate, Terminated, TimeLimitExceeded
from celery.utils.imports import symbol_by_name

# A mixin for classes of requests; only a type checker sees it as a request itself.
_Request: Any = Any if TYPE_CHECKING else object

#: The request whose failure the worker's main process is handling.
_handled: ContextVar[Any] = ContextVar("request_that_failed", default=None)


def request_class(base: Any) -> Any:
    """Makes a class of requests that tell their task when it has failed for good.

    Args:
        base: The task's class of requests so far, or its dotted name.
    """
    kind = symbol_by_name(base)
    return kind if issubclass(kind, WatchingRequest) else type(kind.__name__, (WatchingRequest, kind), {})


class WatchingRequest(_Request):
    """Extends a class of requests in the worker's main process; ``request_class`` puts it before that class.

    A task that failed in its own process has handled the failure already. Celery passes ``return_ok`` then.
    """

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Handles a failure as Celery does. After a final failure Celery sends ``task_failure``."""
        token = _handled.set(None if return_ok else self)
        try:
            return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        except Exception:  # an error of the result backend, or a child's MemoryError, which Celery raises here
            error = exc_info.exception
            if isinstance(error, ExceptionWithTraceback):
                error = error.exc
            if not (return_ok or self.task.acks_late or isinstance(error, (TaskPredicate, Terminated))):
                self.fail(error)
            raise
        finally:
            _handled.reset(token)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        """Handles a time limit as Celery does. Some pools call only this method, not ``on_failure``."""
        from celery.worker import state  # brings in all of Celery's worker

        done = super().on_timeout(soft, timeout)
        if not soft and not state.should_terminate and not self._comes_again_after_timeout():
            self.fail(TimeLimitExceeded(timeout))
        return done

    def fail(self, error: BaseException) -> None:
        """Tells the task that it has failed for good."""
        self.task.fail_from_outside(self._context, error)

    def _comes_again_after_timeout(self) -> bool:
        task = self.task
        acked = getattr(task, "acks_on_timeout", None)  # from Celery 5.7 on
        return bool(task.acks_late) and not (task.acks_on_failure_or_timeout if acked is None else acked)


def note_failure(sender: Any, task_id: str, exception: BaseException, **kwargs: Any) -> None:
    """Receives the signal ``task_failure``, and tells the task that it has failed for good."""
    request = _handled.get()
    if request is not None and request.id == task_id and not isinstance(exception, Reject):
        request.fail(exception)
