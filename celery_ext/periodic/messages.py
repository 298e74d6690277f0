"""The message of a run, as Celery's beat would send it, caught before it goes to Redis."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha1
from numbers import Real
from typing import Any, NamedTuple

from celery.beat import _evaluate_entry_args, _evaluate_entry_kwargs

from celery_ext.periodic.entries import Entry
from celery_ext.publish import EXPIRES, RESULT_OF_UNKNOWN, Call, ManyMessages, NoTemplate, Recipe, Target, has_receivers
from kombu_delayq.errors import DelayqError
from kombu_delayq.message import CHAIN, Message, due_of, moment_of, task_id_of, uuid_of, version_4
from kombu_delayq.store import Offer

#: Header of each run: the name of its entry. Messages of a stock beat do not have it.
ENTRY = "periodic_entry"
#: Header of Celery's beat.
BEAT = "celery_beat_task"
#: Options that differ from run to run.
_OWN = ("eta", "expires", "headers")
#: So many runs alike are made by Celery before there is a template, which costs as much as some of them.
_BEFORE_TEMPLATE = 5


class WrongEntry(DelayqError):
    """An entry cannot be sent as a delayed message."""


class Caught(NamedTuple):
    """A message on its way to one queue.

    Attributes:
        queue: The queue.
        offer: The message.
        expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
    """

    queue: str
    offer: Offer
    expire_ms: int


def options_of(app: Any, entry: Entry, at_ms: int, next_ms: int | None) -> dict[str, Any]:
    """Returns the options of ``apply_async`` for a run; the arguments are those of ``RunMessages.of``."""
    options = {**entry.options, "headers": {**(entry.options.get("headers") or {}), BEAT: True, ENTRY: entry.name}}
    options.pop("task_id", None)  # each run has its own
    wait = timedelta(seconds=max(options.pop("countdown", None) or 0, 0))  # below 0 it would come before its time
    options["eta"] = moment_of(at_ms) + wait
    expires = entry.options.get("expires", getattr(app.tasks.get(entry.task), "expires", None))
    if expires == "next":
        options["expires"] = None if next_ms is None else moment_of(next_ms) + wait
    elif isinstance(expires, Real):
        options["expires"] = moment_of(at_ms) + timedelta(seconds=float(expires))
    return options


def send_run(app: Any, entry: Entry, options: dict[str, Any]) -> Any:
    """Sends a run as Celery's beat does, with lazy arguments evaluated now. Returns the result of the call."""
    return _send(app, entry, *_arguments_of(entry), options)


def _arguments_of(entry: Entry) -> tuple[Any, Any]:
    """Returns the arguments of a run, with lazy ones evaluated now. Source: celery.beat.Scheduler.apply_async."""
    return _evaluate_entry_args(entry.args), _evaluate_entry_kwargs(entry.kwargs)


def _send(app: Any, entry: Entry, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
    task = app.tasks.get(entry.task)
    if task is None:
        return app.send_task(entry.task, args, kwargs, **options)
    return task.apply_async(args, kwargs, **options)


class _Like(NamedTuple):
    """Makes messages like the first, which Celery has made, for runs of entries with the same task and options."""

    first: Caught
    recipe: Recipe
    messages: ManyMessages


class RunMessages:
    """Makes the messages of runs. Of many that are alike Celery makes the first ones, and a template the others.

    Args:
        app: The app.
        channel: A channel of our transport on Redis, of a connection that nobody else uses.
    """

    def __init__(self, app: Any, channel: Any) -> None:
        self._app, self._channel = app, channel
        self._put, self._put_fanout = channel._put, channel._put_fanout
        channel._put, channel._put_fanout = self._catch, self._refuse
        self._producer = app.amqp.Producer(channel)
        self._namespace = sha1(f"{app.main}\n{channel.global_keyprefix}\n".encode(), usedforsecurity=False)
        self._task_id = ""
        self._ignore_result: Any = None
        self._caught: list[Caught] = []
        self._in_chain = False
        self._like: dict[Any, _Like | int | None] = {}

    def id_of(self, entry: Entry, at_ms: int) -> str:
        """Returns the task id of a run, the same in each process."""
        content = self._namespace.copy()
        content.update(f"{entry.name}\n{at_ms}".encode("utf-8", "surrogatepass"))
        return uuid_of(version_4(content.hexdigest()[:32]))

    def of(self, entry: Entry, at_ms: int, next_ms: int | None, task_id: str | None = None) -> list[Caught]:
        """Returns the message of a run, for each of the queues to which it goes.

        Args:
            entry: The entry.
            at_ms: Time of the run, ms since the epoch.
            next_ms: Time of the run after it; None for none.
            task_id: Task id; None for that of the run.

        Raises:
            WrongEntry: It goes to no queue, or to a fanout, which keeps no message.
            Exception: What an argument, a router or the task raises.
        """
        identity = task_id or self.id_of(entry, at_ms)
        options, (args, kwargs) = options_of(self._app, entry, at_ms, next_ms), _arguments_of(entry)
        key = _key_of(entry, options)
        like = None if key is None else self._like.get(key, 0)
        if isinstance(like, _Like):
            if like.recipe.still_holds(self._app, self._app.amqp.queues) and not has_receivers(entry.task):
                call = Call(args, kwargs, eta=options["eta"], task_id=identity)
                offer = like.messages.of(call, expires=options.get("expires"), headers=options["headers"])
                if offer.due:  # one that is past has none
                    return [like.first._replace(offer=offer)]
            else:
                del self._like[key]
        caught = self._made_by_celery(entry, identity, args, kwargs, options)
        if isinstance(like, int):
            self._like[key] = like + 1 if like < _BEFORE_TEMPLATE else self._like_this(entry, args, kwargs, options)
        return caught

    def _made_by_celery(self, entry: Entry, task_id: str, args: Any, kwargs: Any, options: Any) -> list[Caught]:
        if self._app.conf.task_always_eager:
            raise WrongEntry("task_always_eager is set, with which no task waits")
        self._caught, self._task_id = [], task_id
        task = self._app.tasks.get(entry.task)
        self._ignore_result = entry.options.get(
            "ignore_result", RESULT_OF_UNKNOWN if task is None else task.ignore_result
        )
        # Else the result backend would wait for this result.
        more = {"ignore_result": True, "task_id": task_id, "producer": self._producer, "retry": False}
        _send(self._app, entry, args, kwargs, {**options, **more, "add_to_parent": False})
        if not self._caught:
            raise WrongEntry(f"its task {entry.task} goes to no queue")
        return self._caught

    def _like_this(self, entry: Entry, args: Any, kwargs: Any, options: dict[str, Any]) -> _Like | None:
        """Returns what makes messages like the one that was just caught; None if Celery has to make each."""
        if len(self._caught) != 1 or self._in_chain:
            return None
        shared = {name: value for name, value in options.items() if name not in _OWN}
        if "expires" in options:
            shared["expires"] = options["expires"] and EXPIRES
        target = Target(self._app, entry.task, shared)
        if target.why_one_by_one() is not None:
            return None
        try:
            recipe = target.recipe(args, kwargs)
        except NoTemplate:
            return None
        recipe = recipe._replace(broker=replace(recipe.broker, max_delay=None))  # which is no limit of a schedule
        return _Like(self._caught[0], recipe, ManyMessages(target, recipe))

    def _catch(self, queue: str, message: Message, **kwargs: Any) -> Any:
        if task_id_of(message["headers"]) != self._task_id:
            return self._put(queue, message, **kwargs)
        message["headers"]["ignore_result"] = self._ignore_result
        self._in_chain = message["properties"].get(CHAIN) is not None
        if self._in_chain:
            self._channel.store.chains.use_chains()
        due = due_of(message)
        if due is None:
            raise WrongEntry("task_protocol is 1, or something removes the eta of its message")
        self._caught.append(Caught(queue, self._channel.offer_of(message, due), self._channel.expire_ms(queue)))
        return None

    def _refuse(self, exchange: str, message: Message, *args: Any, **kwargs: Any) -> Any:
        if task_id_of(message["headers"]) != self._task_id:
            return self._put_fanout(exchange, message, *args, **kwargs)
        raise WrongEntry(f"it goes to the fanout exchange {exchange}, which keeps no message until it is due")


def _key_of(entry: Entry, options: dict[str, Any]) -> Any:
    """Returns what runs have in common whose messages one template makes; None if an option is a list or the like."""
    shared = [(name, type(value), value) for name, value in options.items() if name not in _OWN]
    expires = "expires" in options, options.get("expires") is None
    key = entry.task, *expires, *sorted(shared, key=lambda option: option[0])
    try:
        hash(key)
    except TypeError:
        return None
    return key
