"""How a worker receives plain tasks: what Celery's strategy does, without what only other tasks need."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from time import time
from typing import Any, ClassVar

from celery import signals
from celery.app import trace
from celery.concurrency.base import apply_target
from celery.exceptions import TaskRevokedError
from celery.utils.imports import symbol_by_name
from celery.worker import state, strategy
from celery.worker.request import Request, create_request_cls
from vine import promise

from celery_ext.worker.task_threads import TaskThreads
from kombu_delayq.consume import FetchedMessage

#: A strategy as a task's ``Strategy`` makes it: gets a message, its body, what acknowledges and rejects it, and
#: callbacks.
Strategy = Callable[..., Any]

#: Types of arguments that nobody can change in place.
_SCALARS = frozenset({str, int, float, bool, type(None)})


class Ack:
    """A promise that acknowledges or rejects a message; one of vine's own takes its place where it is more.

    The arguments and attributes are those of ``vine.promise``.
    """

    __slots__ = ("_promise", "args", "fun", "on_error")
    kwargs: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], on_error: Any = None) -> None:
        self.fun, self.args, self.on_error = fun, args, on_error
        self._promise: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Acknowledges or rejects the message."""
        if self._promise is not None:
            return self._promise(*args, **kwargs)
        try:
            return self.fun(*self.args, *args, **kwargs)
        except Exception:
            return self._full().throw()

    def then(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a callback."""
        return self._full().then(*args, **kwargs)

    def _full(self) -> Any:
        if self._promise is None:
            self._promise = promise(self.fun, self.args, on_error=self.on_error)
        return self._promise


def plain(task: Any, app: Any, consumer: Any, celerys: Strategy) -> Strategy:
    """Returns a strategy for messages of a task, which leaves all but plain ones to that of Celery.

    A plain one is of protocol 2, and has no eta, or one that is over: Celery hands its timer also a task that is due,
    which costs several times as much. The task has no strategy of its own, and no rate limit.

    Args:
        task: The task.
        app: Its app.
        consumer: The worker's consumer.
        celerys: The strategy that Celery has made.

    Source: celery.worker.strategy.default.
    """
    if task.Strategy != "celery.worker.strategy:default":
        return celerys
    hostname, errors, eventer = consumer.hostname, consumer.connection_errors, consumer.event_dispatcher
    make = _request_class(task, app, consumer)
    does_info = strategy.logger.isEnabledFor(logging.INFO)
    sends_events = eventer and eventer.enabled and task.send_events
    buckets, has_limits = consumer.task_buckets, not consumer.disable_rate_limits
    receivers, revoked, reserved = signals.task_received, state.revoked, state.task_reserved
    handle, utc, name = consumer.on_task_request, app.uses_utc_timezone(), task.name

    def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> Any:
        headers = message.headers
        eta = headers.get("eta")
        if (
            body is not None
            or not (eta is None or _is_over(eta))
            or (has_limits and buckets[name])
            or type(message.payload) is not list
        ):
            return celerys(message, body, ack, reject, callbacks)
        made = make(
            message,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=hostname,
            eventer=eventer,
            task=task,
            connection_errors=errors,
            body=message.body,
            headers=headers,
            decoded=False,
            utc=utc,
        )
        if does_info:
            context = {
                "id": made.id,
                "name": made.name,
                "args": made.argsrepr,
                "kwargs": made.kwargsrepr,
                "eta": made.eta,
            }
            strategy.logger.info(trace.LOG_RECEIVED, context, extra={"data": context})
        if (made.expires or made.id in revoked) and made.revoked():
            return None
        receivers.send(sender=consumer, request=made)
        if sends_events and _listens(eventer):
            eventer.send(
                "task-received",
                uuid=made.id,
                name=made.name,
                args=made.argsrepr,
                kwargs=made.kwargsrepr,
                root_id=made.root_id,
                parent_id=made.parent_id,
                retries=made.request_dict.get("retries", 0),
                eta=made.eta and made.eta.isoformat(),
                expires=made.expires and made.expires.isoformat(),
            )
        reserved(made)
        if eta is None:
            for callback in callbacks or ():
                callback(made)
        elif isinstance(message, FetchedMessage):
            message.note_begun()
        handle(made)
        return None

    return receive


def _request_class(task: Any, app: Any, consumer: Any) -> Any:
    """Returns the class of a task's requests. Where the pool runs tasks in this process, it decodes arguments once."""
    pool, eventer = consumer.pool, consumer.event_dispatcher
    apply = pool.on_apply
    of_task = symbol_by_name(task.Request)
    base = create_request_cls(of_task, task, pool, consumer.hostname, eventer, app=app)
    base._tzlocal = app.conf.timezone  # for an eta; each request would look it up in the settings
    if apply is not apply_target and not isinstance(getattr(apply, "__self__", None), TaskThreads):
        return base
    run = trace.fast_trace_task if app.use_fast_trace_task else trace.trace_task_ret

    class PlainRequest(base):  # type: ignore[misc, valid-type]
        """A request that goes to the pool with arguments that are decoded, where they cannot change in place."""

        def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
            content = self._message.payload
            if pool._does_debug or not _is_plain(content):
                return super().execute_using_pool(pool, **kwargs)
            if self.revoked():
                raise TaskRevokedError(self.id)
            args, keywords, embed = content
            body = (args.copy(), keywords.copy(), embed)
            call = (self._type, self.id, self._request_dict, body, None, None)
            return apply(run, call, None, self.on_success, self.on_accepted)

        if of_task.send_event is Request.send_event:

            def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 (Celery's name)
                if _listens(eventer):
                    super().send_event(type, **fields)

    return PlainRequest


def _is_over(eta: Any) -> bool:
    """Whether an eta is over; one that is not as Celery writes it is left to Celery."""
    try:
        due = datetime.fromisoformat(eta)
        return due.tzinfo is not None and due.timestamp() <= time()
    except (TypeError, ValueError, OverflowError):
        return False


def _listens(eventer: Any) -> bool:
    """Whether anybody wants events of tasks."""
    return eventer is not None and (not eventer.groups or "task" in eventer.groups)


def _is_plain(content: Any) -> bool:
    """Whether the content of a task's message has only values that nobody can change in place."""
    args, kwargs, embed = content
    return (
        type(args) is list
        and type(kwargs) is dict
        and type(embed) is dict
        and _SCALARS.issuperset(map(type, args))
        and _SCALARS.issuperset(map(type, kwargs.values()))
        and _SCALARS.issuperset(map(type, embed.values()))
    )
