"""The message of a run, as Celery's beat would send it, caught before it goes to Redis."""

from datetime import timedelta
from numbers import Real
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from celery.beat import _evaluate_entry_args, _evaluate_entry_kwargs

from celery_ext.periodic.entries import Entry
from celery_ext.publish.template import RESULT_OF_UNKNOWN
from kombu_delayq.errors import DelayqError
from kombu_delayq.message.due import due_of, moment_of
from kombu_delayq.message.fields import CHAIN, Message, task_id_of
from kombu_delayq.store.types import Offer

#: Message property of each run: the name of its entry. Messages of a stock beat have the header alone.
ENTRY = "periodic_entry"
#: Header of Celery's beat.
BEAT = "celery_beat_task"


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
    options = {**entry.options, "headers": {**(entry.options.get("headers") or {}), BEAT: True}, ENTRY: entry.name}
    wait = timedelta(seconds=options.pop("countdown", None) or 0)
    options["eta"] = moment_of(at_ms) + wait
    expires = entry.options.get("expires", getattr(app.tasks.get(entry.task), "expires", None))
    if expires == "next":
        options["expires"] = None if next_ms is None else moment_of(next_ms) + wait
    elif isinstance(expires, Real):
        options["expires"] = moment_of(at_ms) + timedelta(seconds=float(expires))
    return options


def send_run(app: Any, entry: Entry, options: dict[str, Any]) -> Any:
    """Sends a run as Celery's beat does, with lazy arguments evaluated now. Returns the result of the call.

    Source: celery.beat.Scheduler.apply_async
    """
    task = app.tasks.get(entry.task)
    args, kwargs = _evaluate_entry_args(entry.args), _evaluate_entry_kwargs(entry.kwargs)
    if task is None:
        return app.send_task(entry.task, args, kwargs, **options)
    return task.apply_async(args, kwargs, **options)


class RunMessages:
    """Makes the messages of runs.

    Args:
        app: The app.
        channel: A channel of our transport on Redis, of a connection that nobody else uses.
    """

    def __init__(self, app: Any, channel: Any) -> None:
        self._app, self._channel = app, channel
        self._put, self._put_fanout = channel._put, channel._put_fanout
        channel._put, channel._put_fanout = self._catch, self._refuse
        self._producer = app.amqp.Producer(channel)
        self._namespace = uuid5(NAMESPACE_URL, f"{app.main}\n{channel.global_keyprefix}")
        self._task_id = ""
        self._ignore_result: Any = None
        self._caught: list[Caught] = []

    def id_of(self, entry: Entry, at_ms: int) -> str:
        """Returns the task id of a run, the same in each process."""
        return str(uuid5(self._namespace, f"{entry.name}\n{at_ms}"))

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
        if self._app.conf.task_always_eager:
            raise WrongEntry("task_always_eager is set, with which no task waits")
        self._caught, self._task_id = [], task_id or self.id_of(entry, at_ms)
        task = self._app.tasks.get(entry.task)
        self._ignore_result = entry.options.get(
            "ignore_result", RESULT_OF_UNKNOWN if task is None else task.ignore_result
        )
        # Else the result backend would wait for this result.
        more = {"ignore_result": True, "task_id": self._task_id, "producer": self._producer, "retry": False}
        send_run(self._app, entry, {**options_of(self._app, entry, at_ms, next_ms), **more, "add_to_parent": False})
        if not self._caught:
            raise WrongEntry(f"its task {entry.task} goes to no queue")
        return self._caught

    def _catch(self, queue: str, message: Message, **kwargs: Any) -> Any:
        if task_id_of(message["headers"]) != self._task_id:
            return self._put(queue, message, **kwargs)
        message["headers"]["ignore_result"] = self._ignore_result
        if message["properties"].get(CHAIN) is not None:
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
