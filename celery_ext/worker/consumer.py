"""What a worker's consumer does in less time: it acknowledges at once, and wakes few threads."""

from collections.abc import Callable
from functools import partial, wraps
from time import sleep
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from celery.concurrency import solo
from celery.exceptions import WorkerTerminate
from celery.platforms import EX_FAILURE
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.log import get_logger
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from celery_ext.connection import channel_of_consumer, open_store, wrong_keys
from celery_ext.worker.plain import Ack, plain
from celery_ext.worker.task_threads import TaskThreads
from kombu_delayq.consume.fetched import FetchedMessage, read_json_quickly
from kombu_delayq.redis.errors import is_wrong_type

#: How often a worker that waits because of a key of the wrong type looks at it, in s.
LOOK_S = 1.0

logger = get_logger(__name__)

# A base only for the type checker: the class is mixed into Celery's consumer.
_Consumer: Any = Consumer if TYPE_CHECKING else object


class LeanConsumer(_Consumer):
    """A mixin, to the left of Celery's consumer or of the one that ``worker_consumer`` names.

    Celery lets its event loop acknowledge, with a promise and often a turn of the loop for each task. Our transport
    only notes the tag of the message, and sends all that were noted with its next command.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads = TaskThreads.of(self.pool)
        self.blueprint.start = partial(_start_or_wait, self.blueprint.start)
        if type(self.pool) is solo.TaskPool:
            self.pool.terminate_job = partial(_end_solo, self.pool.terminate_job)

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


def make_lean(worker: Any) -> None:
    """Lets a worker that is about to start consume in less time. Nothing else changes.

    Args:
        worker: Celery's ``WorkController``, at its signal ``worker_init``.
    """
    found = symbol_by_name(worker.consumer_cls)
    if not issubclass(found, LeanConsumer):
        worker.consumer_cls = type(found.__name__, (LeanConsumer, found), {"__module__": found.__module__})
    read_json_quickly()
    note_celerys_headers()


def note_celerys_headers() -> None:
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

    Context._get_custom_headers = custom_headers


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
    """Starts a consumer, and consumes. While a key of the wrong type is in the way, the worker waits.

    Celery's own worker would end, and so would all others that need the key.

    Raises:
        RedisConnectionError: The key is away. For Celery the connection is lost, so that it starts anew.
        WorkerShutdown: The worker is to end.
    """
    try:
        return celerys(consumer)
    except ResponseError as error:
        if not is_wrong_type(error):
            raise
        _await_right_keys(consumer.app, error)
        raise RedisConnectionError(str(error)) from error


def _await_right_keys(app: Any, error: ResponseError) -> None:
    """Waits until no key that workers need has another type; where none is found, for a moment."""
    with app.connection_for_read() as connection:
        store = open_store(connection)
        found = wrong_keys(store, app)
        logger.error("this worker consumes nothing, and waits: %s", "; ".join(found) or error)
        while True:
            sleep(LOOK_S)
            state.maybe_shutdown()
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
