"""The class of tasks that follow a delay chain when they fail, and are buried after the last step."""

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celery.app.task import Context, Task
from celery.exceptions import Ignore, Reject, WorkerLostError
from celery.utils.dispatch import Signal
from kombu.log import get_logger
from kombu.serialization import registry

from celery_ext.celery_tasks import announce_revoked
from celery_ext.dead_letters.burying import (
    SETTING,
    bury,
    can_go_back,
    check_occasion,
    going_back,
    publish_letter,
    reason_of,
    told_of,
)
from celery_ext.delays.chain import DelayChain, id_of_chain
from celery_ext.delays.endings import BackendAfterLetter, ChainCancelled, GivenUp, handled, request_class
from celery_ext.delays.levels import delay_of_level
from celery_ext.delays.on_commit import is_replacing
from celery_ext.limits import LimitDeclaration, add_key, declared_limit
from kombu_delayq.errors import DelayChainCancelled, DelayqError, InvalidDeadLetter, InvalidDelayChain
from kombu_delayq.message import CHAIN_ID, LAST_ERROR, Reason, apply_here, argument, check_waiting, text_of

logger = get_logger(__name__)

#: A task has failed after the last step of its delay chain. The sender is the task. The arguments are task_id, request,
#: chain (a DelayChain) and exception (the one that ``retry`` got, a WorkerLostError, or None). The process that ran the
#: task sends the signal before the task fails; if that process was lost, the worker's main process sends it.
delay_chain_exhausted = Signal(
    name="delay_chain_exhausted", providing_args={"task_id", "request", "chain", "exception"}
)

# A mixin for classes of tasks; only a type checker sees it as a task itself.
_Task: Any = Task if TYPE_CHECKING else object

#: What a fast publisher says of a call that it has looked at, and that Celery has to send.
LEFT_TO_CELERY: Any = object()
#: Schedule of an eager call while it runs; there is no message that could carry it.
_eager_chain: ContextVar[DelayChain | None] = ContextVar("delay_chain_of_eager_call", default=None)
#: Request of a task that has just failed with an internal error; Celery calls ``on_failure`` without it then.
_untraced: ContextVar[Any] = ContextVar("request_of_internal_error", default=None)


class DelayChainTask(_Task):
    """The first base of the class of every task of an app for which ``install`` was called.

    Attributes:
        delay_chain: Retry schedule, a ``DelayChain`` or its text. It decides how often the task is retried.
        dead_letter_queue: Name of the queue that gets the message when the task has failed for good.
        dead_letter_on: When the message goes there: ``exhausted``, when no retry is left; ``failure``, after any final
            failure. None for the setting ``delayq_dead_letter_on``, whose default is ``exhausted``.
        waiting_key: Names of arguments that make the key of a call without a task id.
        if_waiting: What happens where that waits already. None for ``keep`` if there is a ``waiting_key``.
        limit: The name of a limit, or that and names of arguments whose values make the key.
        declared_limit: The same, as it was read.
    """

    delay_chain: DelayChain | str | None
    dead_letter_queue: str | None
    dead_letter_on: str | None
    waiting_key: Sequence[str] | None
    if_waiting: str | None
    limit: str | Sequence[str] | None
    declared_limit: LimitDeclaration | None

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Reads the declaration again, with the attributes that ``task_annotations`` gave to the task."""
        super().on_bound(app)
        cls.read_declaration()

    @classmethod
    def read_declaration(cls) -> None:
        """Reads the declaration of a task. The length of its delay chain becomes its limit of retries.

        Raises:
            InvalidDelayChain: ``delay_chain`` is not a delay chain, or the task has ``retry_backoff`` too.
            InvalidDeadLetter: ``dead_letter_on`` is wrong, or the task has no ``dead_letter_queue`` for it.
            InvalidIfWaiting: ``waiting_key`` or ``if_waiting`` is wrong.
            InvalidLimit: ``limit`` is wrong.
        """
        check_waiting(cls)
        cls.declared_limit = declared_limit(cls)
        cls._read_dead_letter_queue()
        if cls.delay_chain is None:
            return
        try:
            chain = cls.delay_chain = DelayChain.parse(cls.delay_chain)
        except InvalidDelayChain as error:
            raise InvalidDelayChain(f"task {cls.name}: {error}") from None
        if getattr(cls, "retry_backoff", False):
            raise InvalidDelayChain(f"task {cls.name} has both a delay_chain and retry_backoff; one of them has to go")
        cls.max_retries = len(chain)

    @classmethod
    def _read_dead_letter_queue(cls) -> None:
        check_occasion(cls.dead_letter_on, f"dead_letter_on of task {cls.name}")
        if not cls.__bound__:
            return  # task_annotations may still name the queue
        if cls.dead_letter_on is not None and cls.dead_letter_queue is None:
            raise InvalidDeadLetter(f"task {cls.name} has a dead_letter_on, but no dead_letter_queue")
        if cls.dead_letter_queue is not None:
            check_occasion(cls._get_app().conf.get(SETTING), f"the setting {SETTING}")

    @property
    def Request(self) -> Any:  # noqa: N802  # Celery's name
        """The class of requests in the worker's main process: it counts failures, and notices a lost process."""
        return request_class(super().Request)

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> Any:
        """Does what the task's own class does after a failure, unless the message goes back.

        An error of the own class is logged where the message is buried: it is already, before the failure is stored.
        ``fail_from_outside`` handles a failure that ends the task from outside, because Celery's versions differ there.
        """
        request, done = self._request_of(task_id), None
        if request is not None:
            self.fail_for_good(request, exc)
            if refused := request.get("refused"):
                einfo.exception = going_back(refused)  # what the worker's main process gets
                return None
        try:
            done = super().on_failure(exc, task_id, args, kwargs, einfo)
        except MemoryError:
            raise
        except Exception:
            if self.request.is_eager or not self._buries_failures:
                raise
            logger.exception("on_failure of task %s[%s] raised an error", self.name, task_id)
        return done

    def _request_of(self, task_id: str) -> Any:
        """Returns the request of a task that has failed in this process; None for one that another process ran."""
        request, untraced = self.request, _untraced.get()
        if request.id != task_id and untraced is not None and untraced.id == task_id:
            request = untraced
        if request.id != task_id:
            return None
        _untraced.set(None)
        return request

    def fail_from_outside(self, request: Any, exc: BaseException) -> None:
        """In the worker's main process, gives up or buries a task whose own process could not do it."""
        if isinstance(exc, WorkerLostError) and getattr(self, "retry_on_worker_lost", False):  # from Celery 5.7 on
            chain = self._chain_of(request)
            limit = self.max_retries if chain is None else len(chain)
            if limit is not None and request.retries >= limit:
                self._give_up(request, chain, exc)
        self.fail_for_good(request, exc)

    def apply_async(self, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        """Sends the task, as ``celery.Task.apply_async`` does, with ``fast_publish`` in less time."""
        sender = vars(self._get_app()).get("send_task")
        asks = self.waiting_key is not None or self.if_waiting is not None
        reads = bool(more) or asks or getattr(sender, "on_commit", False)
        fast = None if reads else getattr(sender, "fast", None)
        if fast is not None:
            result = fast.apply_async(self, args, kwargs, options)
            if result is LEFT_TO_CELERY:
                options["delayq_left_to_celery"] = True  # so that ``send_task`` does not look at the call again
            elif result is not None:
                return result
        try:
            return super().apply_async(args, kwargs, *more, **options)
        except DelayChainCancelled as error:
            failed = handled.get()
            if failed is not None and failed.id == options.get("task_id"):
                raise ChainCancelled(str(error)) from error
            raise

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Retries the task. A task with a delay chain waits for as long as the chain's next step says.

        An ``eta``, ``countdown`` or ``delay_level`` of the call replaces the step's delay. Other arguments, result and
        errors are those of ``celery.Task.retry``. The length of a delay chain is the limit of retries; ``max_retries``
        can only lower it.

        Raises:
            celery.exceptions.Ignore: The chain was cancelled while this step ran.
            celery.exceptions.Reject: The broker takes no retry. Acknowledged late, the message goes back, and the task
                runs again.
            DelayqError: The next step cannot wait, for example because it is longer than ``max_delay``.
        """
        # Passes on only arguments that were given: a project's own base class may override retry with fewer arguments.
        given = {"args": args, "kwargs": kwargs, "exc": exc, "eta": eta, "countdown": countdown}
        given["throw"] = None if throw else False
        options |= {name: value for name, value in given.items() if value is not None}
        if (level := options.pop("delay_level", None)) is not None:
            countdown = options["countdown"] = delay_of_level(self.app, level, options)
        request = self.request
        chain = self._chain_of(request)
        limit = self._limit(request, chain, max_retries)
        if request.called_directly or (chain is None and self.dead_letter_queue is None):
            limit = max_retries
        elif limit is not None and request.retries >= limit:
            self._give_up(request, chain, exc)
        elif chain is not None and not eta and countdown is None:
            options["countdown"] = chain.delay_s(request.retries)
        if limit not in (None, self.max_retries):
            options["max_retries"] = limit
        error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
        request.last_error = None if error is None else text_of(error)
        try:
            return super().retry(**options)
        except Reject as reject:
            if isinstance(reject.reason, DelayChainCancelled):
                announce_revoked(self.app, self, request, str(reject.reason))
                raise Ignore(str(reject.reason)) from reject.reason
            if isinstance(reject.reason, DelayqError):
                raise reject.reason from exc  # before 5.7 Celery gives a rejected task no result
            if can_go_back(self, reject.reason):
                raise going_back(text_of(reject.reason)) from reject.reason
            raise

    def on_replace(self, sig: Any) -> Any:
        """Sends what replaces this task, as ``celery.Task.on_replace`` does, also within a transaction."""
        token = is_replacing.set(True)
        try:
            return super().on_replace(sig)
        finally:
            is_replacing.reset(token)

    def signature_from_request(
        self, request: Any = None, args: Any = None, kwargs: Any = None, *more: Any, **options: Any
    ) -> Any:
        """Returns the signature that sends a request again, as a step of the same delay chain.

        Celery calls it for each retry. When a worker process was lost, Celery makes the retry itself; then ``request``
        is not the request that runs here, and the retry waits as the chain says. Arguments that stay the same are
        written as the request's own were, and shown as those.
        """
        request = self.request if request is None else request
        chain = self._chain_of(request)
        if chain is not None:
            options = {"delay_chain": chain.text, CHAIN_ID: id_of_chain(request), **options}
            if request is not self.request and options.get("retries"):
                options["countdown"] = chain.delay_s(request.retries)
        if options.get("retries") and (error := request.get("last_error")):
            options[LAST_ERROR] = error
        options = {**_encoding_of(request, args, kwargs), **options}
        return super().signature_from_request(request, args, kwargs, *more, **options)

    def apply(
        self,
        *args: Any,
        delay_chain: DelayChain | str | None = None,
        delay_level: int | None = None,
        limit: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the task here, as ``celery.Task.apply`` does. A delay chain limits the retries; nothing waits."""
        as_sent = self.name, *args
        add_key(
            self.declared_limit, limit, argument("args", as_sent, kwargs), argument("kwargs", as_sent, kwargs), kwargs
        )
        if delay_level is not None:
            delay_of_level(self.app, delay_level, kwargs)
        token = _eager_chain.set(None if delay_chain is None else DelayChain.parse(delay_chain))
        try:
            return apply_here(super().apply, self, *args, **kwargs)
        finally:
            _eager_chain.reset(token)

    def _chain_of(self, request: Any) -> DelayChain | None:
        """Returns the schedule of a request: that of its message, else that of the task."""
        of_message = (request.properties or {}).get("delay_chain")
        text = of_message or (_eager_chain.get() if request.is_eager else None) or self.delay_chain
        return None if text is None else DelayChain.parse(text)

    def _limit(self, request: Any, chain: DelayChain | None, max_retries: int | None) -> int | None:
        """Returns the limit of retries of the request that runs; None for no limit."""
        gave_up_at: int | None = request.get("gave_up_at")
        if gave_up_at is not None:
            return gave_up_at
        if chain is None:
            return self.max_retries if max_retries is None else max_retries
        return len(chain) if max_retries is None else min(max_retries, len(chain))

    def _give_up(self, request: Any, chain: DelayChain | None, exc: Any) -> None:
        """Notes, once, that no retry is left. Celery's own error follows, which the task may still handle."""
        if request.get("gave_up_at") is not None:
            return  # the task's own retry gave up before, and autoretry_for caught its error
        request.gave_up_at = request.retries
        reason = Reason.RETRIES_EXHAUSTED if chain is None else Reason.CHAIN_EXHAUSTED
        buries = self.dead_letter_queue and not request.is_eager
        # A base class whose ``__call__`` calls Celery's may run the task with a copy of its request.
        outer = next((each for each in self.request_stack.stack if each.id == request.id), request)
        # Celery raises the error again, which adds to its traceback. The letter has the traceback of now.
        outer.given_up = GivenUp(chain, exc, told_of(request, reason, exc) if buries else None)

    def fail_for_good(self, request: Any, exc: BaseException) -> None:
        """Buries the message of a task that has failed for good, if no retry was left or any failure is buried."""
        self._end_retries(request)
        if self._buries_failures and not request.is_eager:
            bury(self, request, reason_of(exc), exc)

    def _end_retries(self, request: Any) -> None:
        """Buries the message and sends the signal, once, when a task that has given up fails."""
        given_up, request.given_up = request.get("given_up"), None
        if given_up is None:
            return
        chain, exception, letter = given_up
        if letter is not None:
            publish_letter(self, request, letter)
        if chain is not None and not request.get("refused"):
            delay_chain_exhausted.send(
                sender=self, task_id=request.id, request=request, chain=chain, exception=exception
            )

    @property
    def backend(self) -> Any:
        """The result backend. Celery's first step after a failure is to store it there."""
        backend, request = super().backend if self._backend is None else self._backend, self.request_stack.top
        may_end = request is not None and (request.get("given_up") or (self._buries_failures and not request.is_eager))
        return BackendAfterLetter(backend, self, request) if may_end else backend

    @backend.setter
    def backend(self, backend: Any) -> None:
        self._backend = backend

    @property
    def _buries_failures(self) -> bool:
        """Whether the message is buried after any failure that is final."""
        return bool(self.dead_letter_queue) and (self.dead_letter_on or self.app.conf.get(SETTING)) == "failure"

    @property
    def override_max_retries(self) -> int:
        """The limit of the last call of ``retry``, which Celery keeps for its next autoretry.

        Celery keeps it in the task, where other threads and the next message would find it; here it is in the request.
        """
        try:
            return int(self.request.__dict__["override_max_retries"])
        except KeyError:
            raise AttributeError("override_max_retries") from None

    @override_max_retries.setter
    def override_max_retries(self, limit: int) -> None:
        self.request.override_max_retries = limit

    @override_max_retries.deleter
    def override_max_retries(self) -> None:
        self.request.__dict__.pop("override_max_retries", None)


def note_internal_error(sender: Any, request: Any, args: Any, kwargs: Any, **more: Any) -> None:
    """Receives the signal ``task_internal_error``, and keeps the request for ``on_failure``."""
    if isinstance(sender, DelayChainTask):
        _untraced.set(Context(request or {}, args=args, kwargs=kwargs))


def _encoding_of(request: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Returns the options of a call that say how its arguments are written and shown.

    args, kwargs: New ones, else None.
    """
    encoding = {"compression": request.get("compression")}
    if args is None:
        encoding["argsrepr"] = request.get("argsrepr")
    if kwargs is None:
        encoding["kwargsrepr"] = request.get("kwargsrepr")
    if args is None and kwargs is None:
        encoding["serializer"] = registry.type_to_name.get((request.properties or {}).get("content_type"))
    return {name: value for name, value in encoding.items() if value}
