"""Reports the tasks that wait in a worker's broker, in the shape of Celery's own replies."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery.utils.functional import maybe_list
from kombu.log import get_logger
from redis.exceptions import RedisError

from celery_ext.connection import channel_of_consumer, store_of_consumer
from celery_ext.doctor import FIELD, facts_of
from celery_ext.waiting import DelayedTask, by_id

if TYPE_CHECKING:
    from kombu_delayq.store import WaitingStore
    from kombu_delayq.store.types import Waiting

logger = get_logger(__name__)

#: Most waiting tasks in one reply; ``delayq status`` counts them all.
MAX_TASKS = 100
#: Largest message, in bytes, whose arguments a reply has. For a larger message the reply has their ``repr``, which
#: Celery shortens.
MAX_ARGUMENT_BYTES = 16 * 1024
#: Stands where Celery names the worker that holds a task. It is no worker's name: a node name has an ``@``.
HOSTNAME = "broker"
#: Priority of every task with an eta in a worker's timer. The task's own priority is in its request. Source:
#: celery.worker.strategy.
TIMER_PRIORITY = 6


def scheduled(state: Any) -> list[dict[str, Any]]:
    """Reports the waiting tasks of the queues that a worker consumes, the next due first.

    Args:
        state: The worker's state, as Celery passes it to remote-control commands.

    Returns:
        For at most ``MAX_TASKS`` tasks: ``eta``, ``priority`` (``TIMER_PRIORITY``) and ``request``. Empty if the store
        cannot be read. Source of the shape: celery.worker.control.scheduled.
    """

    def search(store: "WaitingStore") -> Iterator["Waiting"]:
        queues = [queue.name for queue in state.consumer.task_consumer.queues]
        return merge(*(_browse(store, queue) for queue in queues), key=lambda message: message.due_ms)

    return [
        {"eta": task.due.isoformat(), "priority": TIMER_PRIORITY, "request": _request(task)}
        for task in _tasks(state, search)
    ]


def query_task(state: Any, ids: Sequence[str]) -> dict[str, Any]:
    """Reports waiting tasks by id, whatever queue they are in.

    Args:
        state: The worker's state, as Celery passes it to remote-control commands.
        ids: Task ids.

    Returns:
        By id, for at most ``MAX_TASKS`` waiting tasks: the word ``scheduled``, and the request with its eta. Empty if
        the store cannot be read. Source of the shape: celery.worker.control.query_task.
    """

    def search(store: "WaitingStore") -> Iterator["Waiting"]:
        return (messages[0] for _, messages in by_id.get(store, ids) if messages)

    return {task.id: ("scheduled", {**_request(task), "eta": task.due.isoformat()}) for task in _tasks(state, search)}


def stats(state: Any) -> dict[str, Any]:
    """Reports what ``delayq doctor`` compares among processes.

    Args:
        state: The worker's state, as Celery passes it to remote-control commands.

    Returns:
        The facts of this process (see ``facts_of``) as the field ``delayq``; nothing if the worker is not connected
        through our transport.
    """
    try:
        channel = channel_of_consumer(state.consumer)
        return {} if channel is None else {FIELD: facts_of(channel)}
    except Exception as error:  # Celery's own reply has to go out in any case
        logger.error("the options of this worker cannot be told: %s", error)
        return {}


def valid_ids(ids: Any) -> list[str]:
    """Returns the task ids, one or several, that a remote-control command got, without duplicates.

    A value that is no text cannot be an id, and is left out.
    """
    return list(dict.fromkeys(given for given in maybe_list(ids) or () if isinstance(given, str)))


def _tasks(state: Any, search: Callable[["WaitingStore"], Iterable["Waiting"]]) -> list[DelayedTask]:
    try:
        store = store_of_consumer(state.consumer)
        if store is None:
            return []
        # Only JSON is decoded: it runs no code and can be in a reply. For other arguments the reply has their repr.
        found = (DelayedTask(message, accept=("application/json",)) for message in search(store))
        return list(islice((task for task in found if task.name is not None), MAX_TASKS))
    except Exception as error:  # Celery's own reply has to go out in any case
        logger.error("the waiting tasks cannot be listed: %s", error)
        return []


def _browse(store: "WaitingStore", queue: str) -> Iterator["Waiting"]:
    try:
        yield from by_id.browse(store, queue)
    except RedisError as error:  # one queue that cannot be read must not hide the others
        logger.error("the waiting tasks of queue %r cannot be listed: %s", queue, error)


def _request(task: DelayedTask) -> dict[str, Any]:
    """Returns the request as a worker that holds the task reports it. Source: celery.worker.request.Request.info."""
    small = len(task.message.body or b"") <= MAX_ARGUMENT_BYTES
    delivery_info = task.properties.get("delivery_info") or {}
    return {
        "id": task.id,
        "name": task.headers.get("shadow") or task.name,
        "args": task.args if small and task.args is not None else task.argsrepr,
        "kwargs": task.kwargs if small and task.kwargs is not None else task.kwargsrepr,
        "type": task.name,
        "hostname": HOSTNAME,
        "time_start": None,
        "acknowledged": False,
        "delivery_info": {
            "exchange": delivery_info.get("exchange"),
            "routing_key": delivery_info.get("routing_key"),
            "priority": task.properties.get("priority"),
            "redelivered": False,
        },
        "worker_pid": None,
    }
