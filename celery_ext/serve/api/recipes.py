"""Where a task goes, and how its message is made: once for all requests alike, and kept for a while."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from celery import Celery
from celery.exceptions import QueueNotFound
from kombu.common import maybe_declare
from kombu.entity import Queue
from kombu.exceptions import EncodeError

from celery_ext.publish import ManyMessages, NoTemplate, Target, is_routed_by_code
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.api.exchange import invalid_field
from celery_ext.serve.api.task_request import TaskRequest
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import ServeBroker
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.message import CHAIN

#: Options that a task may have, and that say where its messages go and how. Others are none of a router's business.
_OF_ROUTES = ("queue", "exchange", "routing_key", "priority", "serializer", "delivery_mode", "compression")

#: Errors of a task that cannot be sent as it is: wrong arguments, too long a delay, a value that cannot be written.
WRONG = (TypeError, ValueError, OverflowError, EncodeError)


class TaskRoute(NamedTuple):
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
        """Routes a task here: it can stand where Celery expects a router, so that a router is asked only once."""
        return {**options, **self.options}


def _route_of(app: Celery, request: TaskRequest) -> TaskRoute:
    """Asks the app's router. Raises a Problem where there is no route."""
    if app.conf.task_always_eager:
        raise Problem(501, "the app runs tasks where they are called (task_always_eager), so it enqueues none", "eager")
    task, queue = request.task, request.queue
    known: Any = app.tasks.get(task)
    own = known._get_exec_options() if known is not None else {}
    options = {name: own[name] for name in _OF_ROUTES if own.get(name) is not None}
    queues = app.amqp.queues
    if queue is not None:
        if queue not in queues and not queues.create_missing:
            raise invalid_field("$.queue", f"the app has no queue {queue!r}", "unknown-queue")
        options["queue"] = queues[queue] if queue in queues else queues.new_missing(queue)  # which is not added to them
    options |= {name: value for name, value in request.options(known).items() if name in _OF_ROUTES}
    try:
        found = app.amqp.router.route(options, task, request.args, request.kwargs, known)
    except QueueNotFound as error:
        raise invalid_field("$.queue", str(error), "unknown-queue") from None
    return TaskRoute(_direct_queue(app, found), found)


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


#: How many recipes are kept, and for how long in s: a signal may get a receiver meanwhile, a task another queue.
KEPT, KEPT_S = 500, 30.0


@dataclass(frozen=True)
class RequestRecipe:
    """Makes the messages of requests of a kind.

    Attributes:
        route: Where they go.
        target: The task.
        messages: Makes them; None if Celery has to send each by itself.
        queue: The list to which they go.
        expire_ms: ``x-expires`` of that queue in ms, 0 for none.
        until: When the recipe is out of date, in s of ``monotonic``.
    """

    route: TaskRoute
    target: Target
    messages: ManyMessages | None
    queue: str
    expire_ms: int
    until: float

    @property
    def has_chain(self) -> bool:
        """Whether the messages have a delay chain."""
        return CHAIN in self.target.options


class Recipes:
    """Keeps recipes. All threads share it.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._app = broker.app
        self._kept: OrderedDict[Hashable, RequestRecipe] = OrderedDict()
        self._lock = Lock()

    def known(self, request: TaskRequest) -> RequestRecipe | None:
        """Returns a recipe that is there already; None if ``of`` has to make one, which takes some ms."""
        recipe = self._kept.get(request.kind)
        return recipe if recipe is not None and recipe.until > monotonic() else None

    def of(self, request: TaskRequest, caller: Caller) -> RequestRecipe:
        """Returns the recipe of a request. For a caller who may not send it, no queue is declared, which is a write.

        Raises:
            Problem: 403: the caller may not send it. A recipe that is ``known`` has to be checked by its ``route``.
        """
        recipe = self._make(request, caller)
        if not is_routed_by_code(self._app, request.task, {"queue": request.queue}):
            with self._lock:
                self._kept[request.kind] = recipe
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return recipe

    def _make(self, request: TaskRequest, caller: Caller) -> RequestRecipe:
        app, task = self._app, request.task
        app.loader.import_default_modules()  # once; tasks have attributes that count here
        route = _route_of(app, request)
        route.check(caller, task)
        if route.queue is not None:
            try:
                self._broker.store.keys.check_queue(route.queue)
            except InvalidQueueName as error:
                raise invalid_field("$.queue", str(error)) from None
        options: dict[str, Any] = {"router": route}
        given = request.options(app.tasks.get(task))
        options |= {name: value for name, value in given.items() if name not in _OF_ROUTES}
        if request.expires is not None:
            options["expires"] = request.expires
        target = Target(app, task, options)
        until = monotonic() + KEPT_S
        one_by_one = RequestRecipe(route, target, None, "", 0, until)
        # A page of plain offers compares with nothing that waits.
        if route.queue is None or target.mode is not None or target.why_one_by_one() is not None:
            return one_by_one
        try:
            made = target.recipe(request.args, request.kwargs)
        except NoTemplate:
            return one_by_one
        except WRONG as error:
            raise refused(error) from error
        queue = made.template.queue
        return RequestRecipe(
            route, target, ManyMessages(target, made), queue, self._declare(queue, made.declare), until
        )

    def _declare(self, queue: str, declare: Sequence[Any]) -> int:
        """Declares queues, as publishing does. Returns the ``x-expires`` of the messages' queue in ms."""
        with self._broker.channel() as channel:
            for one in declare:
                maybe_declare(one, channel)
            return int(channel.expire_ms(queue))
