"""How the messages of a kind of request are made: once for all requests alike, and kept for a while."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from kombu.common import maybe_declare

from celery_ext.publish.recipe import Call, Target, is_routed_by_code
from celery_ext.publish.template import NoTemplate
from celery_ext.publish.write import ManyMessages
from celery_ext.serve.access.identity import Caller
from celery_ext.serve.api.models import TaskRequest
from celery_ext.serve.api.routing import WRONG, Way, refused, way_of
from celery_ext.serve.broker import ServeBroker
from kombu_delayq.message.fields import CHAIN
from kombu_delayq.store.types import Offer

#: How many recipes are kept, and for how long in s: a signal may get a receiver meanwhile, a task another queue.
KEPT, KEPT_S = 500, 30.0


class Kind(NamedTuple):
    """What requests have in common that one recipe serves."""

    task: str
    queue: str | None
    priority: int | None
    chain: str | None
    expires: bool

    @classmethod
    def of(cls, request: TaskRequest) -> "Kind":
        """Returns the kind of a request."""
        return cls(request.task, request.queue, request.priority, request.delay_chain, request.expires is not None)


@dataclass(frozen=True)
class Recipe:
    """Makes the messages of requests of a kind.

    Attributes:
        way: Where they go.
        target: The task.
        messages: Makes them; None if Celery has to send each by itself.
        queue: The list to which they go.
        expire_ms: ``x-expires`` of that queue in ms, 0 for none.
        until: When the recipe is out of date, in s of ``monotonic``.
    """

    way: Way
    target: Target
    messages: ManyMessages | None
    queue: str
    expire_ms: int
    until: float

    @property
    def has_chain(self) -> bool:
        """Whether the messages have a delay chain."""
        return CHAIN in self.target.options

    def offer(self, call: Call, expires: Any, headers: Mapping[str, str]) -> Offer:
        """Makes the message of a call, as ``ManyMessages.of`` does."""
        if self.messages is None:
            raise RuntimeError("Celery has to send these messages one by one")
        return self.messages.of(call, expires=expires, headers=headers)

    def send(self, call: Call, expires: Any, headers: Mapping[str, str]) -> str:
        """Lets Celery send a call by itself. Returns the task id."""
        target = self.target
        own = {"expires": expires, "headers": dict(headers) or None, "router": self.way}
        options = {**target.options, **{name: value for name, value in own.items() if value is not None}}
        result = Target(target.app, target.name, options).call(call)
        # A result backend that listens for the results of what this process sends would listen for ever.
        forget = getattr(result.backend, "on_result_fulfilled", None)
        if forget is not None and not result.ignored:
            forget(result)
        return str(result.id)


class Recipes:
    """Keeps recipes. All threads share it.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._app = broker.app
        self._kept: OrderedDict[Kind, Recipe] = OrderedDict()
        self._lock = Lock()

    def known(self, request: TaskRequest) -> Recipe | None:
        """Returns a recipe that is there already; None if ``of`` has to make one, which takes some ms."""
        recipe = self._kept.get(Kind.of(request))
        return recipe if recipe is not None and recipe.until > monotonic() else None

    def of(self, request: TaskRequest, caller: Caller) -> Recipe:
        """Returns the recipe of a request. For a caller who may not send it, no queue is declared, which is a write.

        Raises:
            Problem: 403: the caller may not send it. A recipe that is ``known`` has to be checked by its ``way``.
        """
        found = self.known(request)
        if found is not None:
            return found
        recipe = self._make(request, caller)
        if not is_routed_by_code(self._app, request.task, {"queue": request.queue}):
            with self._lock:
                self._kept[Kind.of(request)] = recipe
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return recipe

    def _make(self, request: TaskRequest, caller: Caller) -> Recipe:
        app, task = self._app, request.task
        app.loader.import_default_modules()  # once; tasks have attributes that count here
        way = way_of(app, task, request.queue, request.args, request.kwargs, request.priority)
        way.check(caller, task)
        options: dict[str, Any] = {"router": way}
        if request.delay_chain is not None:
            options[CHAIN] = request.delay_chain
        if request.expires is not None:
            options["expires"] = request.expires
        target = Target(app, task, options)
        until = monotonic() + KEPT_S
        one_by_one = Recipe(way, target, None, "", 0, until)
        if way.queue is None or target.why_one_by_one() is not None:
            return one_by_one
        try:
            made = target.recipe(request.args, request.kwargs)
        except NoTemplate:
            return one_by_one
        except WRONG as error:
            raise refused(error) from error
        queue = made.template.queue
        return Recipe(way, target, ManyMessages(target, made), queue, self._declare(queue, made.declare), until)

    def _declare(self, queue: str, declare: Sequence[Any]) -> int:
        """Declares queues, as publishing does. Returns the ``x-expires`` of the messages' queue in ms."""
        with self._broker.channel() as channel:
            for one in declare:
                maybe_declare(one, channel)
            return int(channel.expire_ms(queue))
