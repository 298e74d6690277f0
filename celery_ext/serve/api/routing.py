"""Where a task goes: its queue, found as Celery finds it, before anybody asks whether the caller may use it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from celery import Celery
from celery.exceptions import QueueNotFound
from kombu.entity import Queue
from kombu.exceptions import EncodeError

from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.api.exchange import invalid_field
from celery_ext.serve.problems import Problem

#: Options that a task may have, and that say where its messages go and how. Others are none of a router's business.
_OF_ROUTES = ("queue", "exchange", "routing_key", "priority", "serializer", "delivery_mode", "compression")

#: Errors of a task that cannot be sent as it is: wrong arguments, too long a delay, a value that cannot be written.
WRONG = (TypeError, ValueError, OverflowError, EncodeError)


class Way(NamedTuple):
    """Where a task goes.

    Attributes:
        queue: Name of its queue; None if it goes to an exchange, which may have several queues.
        options: What the app's router said.
    """

    queue: str | None
    options: Mapping[str, Any]

    def check(self, caller: Caller, task: str) -> None:
        """Raises a Problem, 403, if the caller may not enqueue this task there."""
        caller.check(Action.ENQUEUE, queue=self.queue, task=task)
        if self.queue is None and "*" not in caller.queues:
            raise Problem(
                403, f"{caller.name} may only use queues, and task {task!r} goes to an exchange", "not-allowed"
            )

    def route(self, options: dict[str, Any], *args: Any) -> dict[str, Any]:
        """Routes a task this way: it can stand where Celery expects a router, so that a router is asked only once."""
        return {**options, **self.options}


def queue_named(app: Celery, name: str) -> Any:
    """Returns a queue for Celery's option ``queue``. A name that the app does not know is not added to its queues.

    Raises:
        Problem: The app may not create queues.
    """
    queues = app.amqp.queues
    if name in queues:
        return queues[name]
    if not queues.create_missing:
        raise invalid_field("$.queue", f"the app has no queue {name!r}", "unknown-queue")
    return queues.new_missing(name)


def way_of(
    app: Celery, task: str, queue: str | None, args: list[Any], kwargs: dict[str, Any], priority: int | None = None
) -> Way:
    """Asks the app's router.

    Args:
        app: The app that publishes.
        task: Name of the task.
        queue: Name of the queue that the caller wants; None for the router's.
        args: Positional arguments; a router in code may look at them.
        kwargs: Keyword arguments.
        priority: Priority that the caller wants.

    Raises:
        Problem: There is no way.
    """
    if app.conf.task_always_eager:
        raise Problem(501, "the app runs tasks where they are called (task_always_eager), so it enqueues none", "eager")
    known: Any = app.tasks.get(task)
    own = known._get_exec_options() if known is not None else {}
    options = {name: own[name] for name in _OF_ROUTES if own.get(name) is not None}
    if queue is not None:
        options["queue"] = queue_named(app, queue)
    if priority is not None:
        options["priority"] = priority
    try:
        found = app.amqp.router.route(options, task, args, kwargs, known)
    except QueueNotFound as error:
        raise invalid_field("$.queue", str(error), "unknown-queue") from None
    return Way(_direct_queue(app, found), found)


def _direct_queue(app: Celery, options: Mapping[str, Any]) -> str | None:
    """Returns the only queue to which Celery sends a task. Source: celery.app.amqp.AMQP._create_task_sender."""
    queue, exchange = options.get("queue"), options.get("exchange")
    if queue is None and exchange is None:
        queue = app.amqp.default_queue
    if queue is None or (exchange and options.get("routing_key")):
        return None
    kind = options.get("exchange_type") or getattr(getattr(queue, "exchange", None), "type", "direct")
    return str(queue.name if isinstance(queue, Queue) else queue) if kind == "direct" else None


def refused(error: Exception) -> Problem:
    """Returns the problem of a task that cannot be published as it is."""
    return Problem(
        422, f"{error or type(error).__name__}", "not-possible", errors=[{"path": "$", "message": str(error)}]
    )
