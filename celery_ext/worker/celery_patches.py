"""All that a worker replaces in Celery and kombu: what, why, and the one place where it is applied and taken off.

Celery 5.5 to 5.7 and kombu 5.5 to 5.7 were tried. Journeys run with the oldest and the newest of them, with the setting
``delayq_patch_celery`` on and off. CI tries the newest pre-releases each week.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from billiard.einfo import ExceptionWithTraceback
from celery.app.task import Context
from celery.concurrency import solo
from celery.exceptions import WorkerTerminate
from celery.platforms import EX_FAILURE
from celery.utils.imports import symbol_by_name
from celery.worker import request as requests
from celery.worker import state
from celery.worker.consumer import Consumer
from celery.worker.control import Panel
from kombu.log import get_logger
from kombu.serialization import registry
from kombu.utils import json
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from celery_ext.connection import channel_of_consumer, open_store, wrong_keys
from celery_ext.limits import Backoff, give_back
from celery_ext.stopping import watch_shutdown
from celery_ext.unrunnable import PatientConsumer
from celery_ext.worker.plain import Ack, plain
from celery_ext.worker.remote_control import extended_commands
from celery_ext.worker.task_threads import TaskThreads
from kombu_delayq.consume import FetchedMessage
from kombu_delayq.message import JSON, from_json
from kombu_delayq.redis import is_full, is_wrong_type

logger = get_logger(__name__)

#: Setting of an app: whether its workers take less time in our way. With False they do all of that in Celery's own.
SETTING = "delayq_patch_celery"
#: How often a worker that waits because of a key of the wrong type looks at it, in s.
LOOK_S = 1.0


class Patch(NamedTuple):
    """Something of Celery or kombu that a worker replaces.

    Attributes:
        of: What is replaced.
        why: What Celery or kombu does, and what ours does instead.
        where: The file that has it.
        stays: Whether a promise stands on it, so that it is there with ``delayq_patch_celery = False``, too.
    """

    of: str
    why: str
    where: str
    stays: bool = False


_HERE = "celery_ext/worker/celery_patches.py"
PATCHES = (
    Patch(
        "`Consumer.call_soon`, `Consumer.call_soon_ack`",
        "Celery lets its event loop acknowledge, with a turn of the loop for each task. Our transport only notes the "
        "ack, and sends all that were noted with its next command.",
        _HERE,
    ),
    Patch(
        "the promise that acknowledges a message",
        "Celery makes one of vine's for each message. Ours is a call, and becomes one of vine's once it is more.",
        "celery_ext/worker/plain.py",
    ),
    Patch(
        "the strategy `celery.worker.strategy:default`, for plain tasks",
        "Ours does what only they need, and hands a task that is due to the pool, not to the timer.",
        "celery_ext/worker/plain.py",
    ),
    Patch(
        "`Request`, with the pools threads and solo",
        "Celery decodes the arguments a second time in the pool. Those that cannot change in place are handed over.",
        "celery_ext/worker/plain.py",
    ),
    Patch(
        "`on_apply` and `flush` of the pool threads",
        "The pool wakes a thread for each task. Here a thread goes on with the next task, and wakes one other at most. "
        "What no thread has begun when a connection is lost runs once; from Celery's pool it runs twice.",
        "celery_ext/worker/task_threads.py",
    ),
    Patch(
        "`Context._get_custom_headers`, in this process",
        "Celery looks up each header of each task among its own. Ours remembers which are.",
        _HERE,
    ),
    Patch(
        "kombu's decoder of JSON, in this process",
        "msgspec reads the same values in a quarter of the time. A decoder of the user's own stays.",
        _HERE,
    ),
    Patch(
        "`task_accepted`, `task_ready` and `Request.on_failure`",
        "Celery tells nobody when a task ends that was acknowledged before. Ours tells its message, whose place is "
        "free then; and a task that raised `Backoff` gives its message back.",
        _HERE,
        stays=True,
    ),
    Patch(
        "`terminate_job` of the pool solo",
        "At a cold shutdown Celery fails the task that runs, and acknowledges it. One with `acks_late` goes back to "
        "its queue.",
        _HERE,
        stays=True,
    ),
    Patch(
        "`on_unknown_task`, `on_unknown_message`, `on_invalid_task` and `on_decode_error` of the consumer",
        "Celery acknowledges what a worker cannot run. Ours gives it back for others, and buries it after "
        "`unknown_ttl`.",
        "celery_ext/unrunnable/giving_back.py",
        stays=True,
    ),
    Patch(
        "`start` of the consumer's blueprint",
        "Celery's worker ends where Redis is full when it starts, or at a key of the wrong type. Ours waits.",
        _HERE,
        stays=True,
    ),
    Patch(
        "the commands `revoke`, `terminate`, `scheduled`, `query_task` and `stats`",
        "Celery's own run first. Then ours look at the tasks that wait in Redis.",
        "celery_ext/worker/remote_control.py",
        stays=True,
    ),
    Patch(
        "`wait_for_soft_shutdown` of the worker",
        "Celery tells no task that its soft shutdown begins. Ours notes when tasks that ask `cancelled` are to stop.",
        "celery_ext/stopping/shutdown.py",
        stays=True,
    ),
    Patch(
        "`send_task`, the registry and the classes of tasks, of one app",
        "They read delay chains and levels, `dead_letter_queue`, `if_waiting`, `waiting_key` and `limit`.",
        "celery_ext/delays/install.py",
        stays=True,
    ),
)

#: What takes the patches off again that are applied to the process, or to a worker.
_applied = ExitStack()

# A base only for the type checker: the class is mixed into Celery's consumer.
_Consumer: Any = Consumer if TYPE_CHECKING else object


def patch_commands() -> None:
    """Lets remote control reach the tasks that wait. A second call changes nothing."""
    extended = extended_commands()
    _applied.callback(Panel.data.update, {name: Panel.data[name] for name in extended})
    Panel.data.update(extended)


def patch_worker(worker: Any) -> None:
    """Applies all patches to a worker on our transport that is about to start, as far as its app's setting says.

    Args:
        worker: Celery's ``WorkController``, at its signal ``worker_init``.
    """
    is_lean = bool(worker.app.conf.get(SETTING, True))
    mixin, given = LeanConsumer if is_lean else CarefulConsumer, worker.consumer_cls
    found = symbol_by_name(given)
    if not issubclass(found, CarefulConsumer):
        _applied.callback(setattr, worker, "consumer_cls", given)
        _applied.callback(watch_shutdown(worker))
        worker.consumer_cls = type(found.__name__, (mixin, found), {"__module__": found.__module__})
    _note_ends()
    if is_lean:
        _read_json_quickly()
        _note_celerys_headers()


def take_off() -> None:
    """Puts back what is replaced, in a process that goes on after its worker."""
    _applied.close()


class CarefulConsumer(PatientConsumer):
    """A mixin, to the left of Celery's consumer or of the one that ``worker_consumer`` names: it loses nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.blueprint.start = partial(_start_or_wait, self.blueprint.start)
        if type(self.pool) is solo.TaskPool:
            self.pool.terminate_job = partial(_end_solo, self.pool.terminate_job)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what handles a message, after each connect."""
        if (channel := channel_of_consumer(self)) is not None:
            channel.free = partial(_free, self.pool)
        return super().create_task_handler(*args, **kwargs)


class LeanConsumer(CarefulConsumer):
    """What a worker's consumer does in less time: it acknowledges at once, and wakes few threads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads = TaskThreads.of(self.pool)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what handles a message, after each connect."""
        if (channel := channel_of_consumer(self)) is not None:
            channel.backlog = _unbegun if self._threads is None else self._threads.__len__
        return super().create_task_handler(Ack, *args, **kwargs)

    def update_strategies(self) -> None:
        """Makes what receives messages, for each task."""
        super().update_strategies()
        for name, task in self.app.tasks.items():
            self.strategies[name] = plain(task, self.app, self, self.strategies[name])

    def call_soon(self, p: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Schedules a callback; before Celery 5.7 also that which acknowledges."""
        return p(*args, **kwargs) if _acks_later(p) else super().call_soon(p, *args, **kwargs)

    def call_soon_ack(self, p: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Acknowledges or rejects a message."""
        return p(*args, **kwargs) if _acks_later(p) else super().call_soon_ack(p, *args, **kwargs)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Closes the connection. What no thread has begun goes back to its queue then, and must not begin meanwhile."""
        if self._threads is not None:
            self._threads.clear()
        super().on_connection_error_after_connected(exc)


def _read_json_quickly() -> None:
    """Lets kombu read bodies in JSON in less time, in this whole process, unless the user has another decoder."""
    if registry._decoders.get(JSON) is json.loads:
        register = partial(registry.register, "json", json.dumps, content_type=JSON, content_encoding="utf-8")
        _applied.callback(register, json.loads)
        register(from_json)


def _note_celerys_headers() -> None:
    """Lets the requests of tasks remember which headers are Celery's, which each looks up one by one. Done once."""
    find = Context._get_custom_headers
    if hasattr(find, "__wrapped__"):
        return
    celerys = set[str]()

    @wraps(find)
    def custom_headers(self: Context, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        is_plain = len(args) == 1 and type(args[0]) is dict
        if is_plain and celerys.issuperset(args[0]) and celerys.issuperset(kwargs):
            return None
        found: dict[str, Any] | None = find(self, *args, **kwargs)
        if is_plain and found is None:
            celerys.update(*args, kwargs)
        return found

    _applied.callback(setattr, Context, "_get_custom_headers", find)
    Context._get_custom_headers = custom_headers


def _note_ends() -> None:
    """Lets the messages of tasks know when these begin and end. Done once in a process."""
    accepted, ready = requests.task_accepted, requests.task_ready
    if hasattr(ready, "__wrapped__"):
        return

    @wraps(accepted)
    def task_accepted(request: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(message := getattr(request, "_message", None), FetchedMessage):
            message.begin()
        accepted(request, *args, **kwargs)

    @wraps(ready)
    def task_ready(request: Any, *args: Any, **kwargs: Any) -> None:
        ready(request, *args, **kwargs)
        if isinstance(message := getattr(request, "_message", None), FetchedMessage):
            message.end()

    failed = requests.Request.on_failure

    @wraps(failed)
    def on_failure(self: Any, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        if isinstance(error, Backoff):
            give_back(self, error)
        return failed(self, exc_info, *args, **kwargs)

    _applied.callback(setattr, requests.Request, "on_failure", failed)
    requests.Request.on_failure = on_failure
    make = requests.create_request_cls
    _applied.callback(setattr, make, "__defaults__", make.__defaults__)
    _applied.callback(setattr, requests, "task_accepted", accepted)
    _applied.callback(setattr, requests, "task_ready", ready)
    make.__defaults__ = tuple(task_ready if default is ready else default for default in make.__defaults__)
    requests.task_accepted, requests.task_ready = task_accepted, task_ready


def _free(pool: Any) -> int:
    """Returns how many processes of a pool have no task, and none waits for them."""
    return max(int(pool.num_processes) - len(state.reserved_requests), 0)


def _end_solo(celerys: Callable[..., Any], *args: Any) -> Any:
    """Ends the running task of a solo pool with its worker, if it is acknowledged late, so that its message goes back.

    Celery's own pool raises an error in the task, which fails and is acknowledged then.

    Raises:
        WorkerTerminate: The worker ends at once.
    """
    running = list(state.active_requests)
    if running and all(request.task.acks_late for request in running):
        raise WorkerTerminate(EX_FAILURE)
    return celerys(*args)


def _start_or_wait(celerys: Callable[..., Any], consumer: Any) -> Any:
    """Starts a consumer, and consumes. While Redis is full, or a key of the wrong type is in the way, the worker waits.

    Celery's own worker would end, and so would all others that need room, or the key.

    Raises:
        RedisConnectionError: It may go on. For Celery the connection is lost, so that it starts anew.
        WorkerShutdown: The worker is to end.
    """
    try:
        return celerys(consumer)
    except ResponseError as error:
        if is_full(error):
            logger.error("this worker cannot start while Redis is full, and waits: %s", error)
            _wait()
        elif is_wrong_type(error):
            _await_right_keys(consumer.app, error)
        else:
            raise
        raise RedisConnectionError(str(error)) from error


def _wait() -> None:
    sleep(LOOK_S)
    state.maybe_shutdown()


def _await_right_keys(app: Any, error: ResponseError) -> None:
    """Waits until no key that workers need has another type; where none is found, for a moment."""
    with app.connection_for_read() as connection:
        store = open_store(connection)
        found = wrong_keys(store, app)
        logger.error("this worker consumes nothing, and waits: %s", "; ".join(found) or error)
        while True:
            _wait()
            if not wrong_keys(store, app):
                return


def _unbegun() -> int:
    """Returns how many tasks wait for the pool."""
    return len(state.reserved_requests) - len(state.active_requests)


def _acks_later(callback: Any) -> bool:
    """Whether a callback acknowledges a message, and that sends nothing."""
    message = getattr(callback, "__self__", None)
    return (
        isinstance(message, FetchedMessage)
        and callback.__name__ == "ack_log_error"
        and not message.acknowledged
        and message.channel.fetcher.acks_later(message.delivery_tag)
    )
