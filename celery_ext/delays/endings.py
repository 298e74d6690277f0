"""How a task learns that it has failed for good: where it runs, and from outside, in the worker's main process."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import Ignore, Reject, Retry, TaskPredicate, Terminated, TimeLimitExceeded, WorkerLostError
from celery.utils.imports import symbol_by_name
from kombu.log import get_logger

from celery_ext.celery_tasks import announce_revoked
from celery_ext.delays.chain import DelayChain
from celery_ext.limits import Backoff

logger = get_logger(__name__)

# A mixin for classes of requests; only a type checker sees it as a request itself.
_Request: Any = Any if TYPE_CHECKING else object

#: The request whose failure the worker's main process is handling.
handled: ContextVar[Any] = ContextVar("request_that_failed", default=None)

#: What Celery gets where the process of a task has ended.
_PROCESS_ENDED = (WorkerLostError, SystemExit, KeyboardInterrupt)


class GivenUp(NamedTuple):
    """What is kept of a task that may not retry any more. When it fails, its worker publishes the letter.

    Attributes:
        chain: Its delay chain; None without one.
        exception: The error that ``retry`` got.
        letter: What the dead letter tells; None if there is to be none.
    """

    chain: DelayChain | None
    exception: Any
    letter: dict[str, Any] | None


class BackendAfterLetter:
    """The result backend of a task that may be buried: its message is, before the failure is stored."""

    def __init__(self, backend: Any, task: Any, request: Any) -> None:
        self._backend, self._task, self._request = backend, task, request

    def mark_as_failure(self, task_id: str, exc: BaseException, *args: Any, **kwargs: Any) -> Any:
        """Stores a failure as the backend does, but that of a task whose message goes back.

        A backend that fails is logged. Celery would handle that as a second failure of a task that is buried already.
        """
        if task_id != self._request.id:
            return self._backend.mark_as_failure(task_id, exc, *args, **kwargs)
        self._task.fail_for_good(self._request, exc)
        if self._request.get("refused"):
            return None
        try:
            return self._backend.mark_as_failure(task_id, exc, *args, **kwargs)
        except Exception:
            logger.exception("the failure of task %s[%s] could not be stored", self._task.name, task_id)
            return None

    def __getattr__(self, name: str) -> Any:
        if name == "_backend":  # of a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self._backend, name)


class ChainCancelled(BaseException):
    """The chain of a task that lost its process was cancelled. Celery would catch an ``Exception`` of that retry."""


def request_class(base: Any) -> Any:
    """Makes a class of requests, from one or its dotted name, that tell their task when it has failed for good."""
    kind = symbol_by_name(base)
    return kind if issubclass(kind, WatchingRequest) else type(kind.__name__, (WatchingRequest, kind), {})


class WatchingRequest(_Request):
    """Extends a class of requests in the worker's main process; ``request_class`` puts it before that class.

    A task that failed in its own process has handled the failure already. Celery passes ``return_ok`` then.
    """

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(message, *args, **kwargs)
        # The process that runs the task gets the properties with its request, and the content type in no other way.
        properties = self._request_dict["properties"]
        self._request_dict["properties"] = {**properties, "content_type": message.content_type}

    def maybe_expire(self) -> Any:
        """Says whether the task has expired. Celery would discard all later tasks of its id, too, for hours."""
        from celery.worker.state import revoked  # brings in all of Celery's worker

        was_revoked, has_expired = self.id in revoked, super().maybe_expire()
        if has_expired and not was_revoked:
            revoked.discard(self.id)
        return has_expired

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Handles a failure as Celery does. After a final failure Celery sends ``task_failure``."""
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        self._count(error)
        token = handled.set(None if return_ok else self)
        try:
            with (
                self._limit_of_message() if isinstance(error, _PROCESS_ENDED) else nullcontext(),
                nullcontext() if return_ok else self._acked_after_letter(),
            ):
                return self._handle_failure(error, exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        finally:
            handled.reset(token)

    def _handle_failure(self, error: BaseException, exc_info: Any, *, return_ok: bool, **given: Any) -> Any:
        try:
            return super().on_failure(exc_info, return_ok=return_ok, **given)
        except Exception:  # an error of the result backend, or a child's MemoryError, which Celery raises here
            is_kept = self.task.acks_late and not self.__dict__.get("was_to_ack")
            if not (return_ok or is_kept or isinstance(error, (TaskPredicate, Terminated))):
                self.fail(error)
            raise

    @contextmanager
    def _acked_after_letter(self) -> Iterator[None]:
        """Acknowledges a message only after its dead letter is written; if that is refused, the message goes back."""
        if not self.task.acks_late:
            yield
            return
        self.acknowledge = partial(setattr, self, "was_to_ack", True)
        try:
            yield
        finally:
            self.__dict__.pop("acknowledge", None)  # a timeout may come while the failure is handled
            if self._context.get("refused"):
                self.reject(requeue=True)
            elif self.__dict__.get("was_to_ack"):
                self.acknowledge()

    @contextmanager
    def _limit_of_message(self) -> Iterator[None]:
        """Gives the task the length of its message's chain as ``max_retries``, by which Celery retries lost processes.

        Celery has no limit for a single message. Where tasks have processes, nobody else in this one asks for it.
        """
        task = self.task
        chain = DelayChain.read(self._request_dict["properties"].get("delay_chain"))
        if chain is None or not getattr(task, "retry_on_worker_lost", False):  # from Celery 5.7 on
            yield
            return
        own = {name: value for name, value in vars(task).items() if name == "max_retries"}
        task.max_retries = len(chain)
        try:
            yield
        finally:
            del task.max_retries
            task.__dict__.update(own)

    def _retry_worker_lost(self, exc: Any, exc_info: Any) -> bool:
        """Retries the task as Celery does from 5.7 on, or revokes it if its chain was cancelled while it ran."""
        try:
            return bool(super()._retry_worker_lost(exc, exc_info))
        except ChainCancelled as cancelled:
            announce_revoked(self.app, self.task, self._context, str(cancelled), self.eventer)
            if self.task.acks_late:
                self.acknowledge()
            return True

    def cancel(self, pool: Any, *args: Any, **kwargs: Any) -> None:
        """Ends the task as Celery does. A green pool takes that for a success, which must not acknowledge it."""
        if pool.is_green:
            self.acknowledged = True
        super().cancel(pool, *args, **kwargs)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        """Handles a time limit as Celery does. Some pools call only this method, not ``on_failure``."""
        from celery.worker import state  # brings in all of Celery's worker

        with self._acked_after_letter():
            done = super().on_timeout(soft, timeout)
            if not soft:
                self._count(TimeLimitExceeded(timeout))
            if not soft and not state.should_terminate and not self._comes_again_after_timeout():
                self.fail(TimeLimitExceeded(timeout))
        return done

    def _count(self, error: BaseException) -> None:
        """Counts a failure, once, for the chart of what has happened to the queue."""
        is_none = isinstance(error, (Ignore, Terminated, Backoff)) or (isinstance(error, Reject) and error.requeue)
        count = getattr(self.message, "count", None)  # of kombu's own messages nobody knows the queue
        if count is not None and not is_none and not self.__dict__.get("is_counted"):
            self.is_counted = True
            count("retried" if isinstance(error, Retry) else "failed")

    def fail(self, error: BaseException) -> None:
        """Tells the task that it has failed for good."""
        self.task.fail_from_outside(self._context, error)

    def _comes_again_after_timeout(self) -> bool:
        task = self.task
        acked = getattr(task, "acks_on_timeout", None)  # from Celery 5.7 on
        return bool(task.acks_late) and not (task.acks_on_failure_or_timeout if acked is None else acked)


def note_failure(sender: Any, task_id: str, exception: BaseException, **kwargs: Any) -> None:
    """Receives the signal ``task_failure``, and tells the task that it has failed for good."""
    request = handled.get()
    if request is not None and request.id == task_id and not isinstance(exception, Reject):
        request.fail(exception)
