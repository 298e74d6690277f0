"""Extends Celery's remote-control commands to the tasks that wait in Redis.

``revoke`` and ``terminate`` also remove the waiting messages of their tasks and end their delay chains, and ask running
tasks to stop that the pool cannot end; ``scheduled``
and ``query_task`` also report waiting tasks; ``stats`` also reports the versions and options that ``delayq doctor``
compares. Each command first runs Celery's own command, and replies in its shape. ``revoke_by_stamped_headers`` is not
extended, because messages cannot be found by their headers. A waiting task with such a stamp is discarded when it is
due, by workers that still know the stamp then.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from heapq import merge
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from celery.utils.functional import maybe_list
from celery.worker.control import Panel
from kombu.log import get_logger
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from celery_ext.connection import channel_of_consumer, store_of_consumer
from celery_ext.facts import FIELD, facts_of
from celery_ext.stopping import Elsewhere as RunningTasks
from celery_ext.waiting import DelayedTask, by_id, revoke

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore, Waiting


logger = get_logger(__name__)

#: How long a revoke works before it replies, and how long at a time it works after that, in s. In between, the worker
#: does other work.
FIRST_SLICE_S, NEXT_SLICE_S = 0.5, 0.05
#: Pause between slices in s; without a pause the worker's event loop would run ten of them at once.
PAUSE_S = 0.001
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


class ExtendedCommand(partial[Any]):
    """Extends one of Celery's commands. Our function gets Celery's as its first argument, and calls it first."""


def extended_commands() -> dict[str, ExtendedCommand]:
    """Returns what takes the place of Celery's commands, by all their names; nothing for those in whose place it is."""
    ours: dict[str, Callable[..., Any]] = {
        "revoke": _revoke,
        "terminate": _terminate,
        "scheduled": scheduled,
        "query_task": query_task,
        "stats": _stats,
    }
    extended: dict[str, ExtendedCommand] = {}
    for name, command in ours.items():
        original = Panel.data.get(name)
        if original is not None and not isinstance(original, ExtendedCommand):
            one = update_wrapper(ExtendedCommand(command, original), original)
            extended |= {alias: one for alias, found in Panel.data.items() if found is original}
    return extended


def _revoke(
    original: Callable[..., Any], state: Any, task_id: Any, terminate: bool = False, *args: Any, **kwargs: Any
) -> Any:
    # Celery's part comes first: from then on a consumer discards a message that is transferred just now.
    reply = _or_refused(partial(original, state, task_id, terminate, *args, **kwargs))
    _cancel(state, _valid_ids(task_id), stops=bool(terminate))
    return reply


def _terminate(original: Callable[..., Any], state: Any, signal: Any, task_id: Any, *args: Any, **kwargs: Any) -> Any:
    reply = _or_refused(partial(original, state, signal, task_id, *args, **kwargs))
    _cancel(state, _valid_ids(task_id), stops=True)
    return reply


def _or_refused(celerys: Callable[[], Any]) -> Any:
    """Returns the reply of Celery's command, also where its pool cannot end a task that runs."""
    try:
        return celerys()
    except NotImplementedError:
        return {"ok": "terminate: this pool ends no running task; one that asks cancelled() is told to stop"}


def _cancel(state: Any, ids: list[str], *, stops: bool) -> None:
    if store_of_consumer(state.consumer) is not None:
        _run_slice(state, _cancel_each(state, ids, stops=stops), FIRST_SLICE_S)


def _cancel_each(state: Any, ids: list[str], *, stops: bool) -> Iterator[None]:
    """Removes the waiting messages of some ids, and asks those that run to stop, if ``stops``.

    Pauses after each id, so that the worker can do other work.
    """
    done = 0
    try:
        dispatcher = partial(getattr, state.consumer, "event_dispatcher")
        places = [RunningTasks()] if stops else []
        for cancelled in revoke.cancel(partial(_open_store, state), ids, state.app, dispatcher, places=places):
            done += 1
            if cancelled.elsewhere:
                logger.info("Asking revoked task to stop: %s", cancelled.id)
            if cancelled.outcome == "chain_ended":
                logger.info("Ending the delay chain of revoked task: %s", cancelled.id)
            for task in map(DelayedTask, cancelled.messages):
                # The words of Celery's own log line.
                logger.info("Discarding revoked task: %s[%s], which waited in queue %s", task.name, task.id, task.queue)
            yield
    except GeneratorExit:
        if done < len(ids):
            _log_unsearched(len(ids) - done, "the worker ends, or has lost its broker")
        raise
    except Exception as error:  # whatever failed, Celery's part is done, and the worker has to live
        _log_unsearched(len(ids) - done, error)


@contextmanager
def _open_store(state: Any) -> "Iterator[DelayStore]":
    store = store_of_consumer(state.consumer)
    if store is None:
        raise RedisConnectionError("the worker has lost its broker")
    yield store


def _run_slice(state: Any, steps: Iterator[None], slice_s: float) -> None:
    """Works for ``slice_s``. If work is left, the worker's timer continues it between other work."""
    until = monotonic() + slice_s
    for _ in steps:
        if monotonic() > until:
            state.consumer.timer.call_after(PAUSE_S, _run_slice, (state, steps, NEXT_SLICE_S))
            return


def _log_unsearched(count: int, reason: object) -> None:
    logger.error(
        "%d of the revoked ids were not searched among the waiting tasks: %s. "
        "Repeat the revoke; else they are discarded only when they are due, by workers that were not restarted",
        count,
        reason,
    )


def scheduled(original: Callable[..., Any], state: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Adds the waiting tasks of the queues that the worker consumes, the next due first, at most ``MAX_TASKS``.

    Source of the shape: celery.worker.control.scheduled.
    """
    reply = original(state, *args, **kwargs)

    def search(store: "DelayStore") -> Iterator["Waiting"]:
        queues = [queue.name for queue in state.consumer.task_consumer.queues]
        return merge(*(_browse(store, queue) for queue in queues), key=lambda message: message.due_ms)

    waiting = [
        {"eta": task.due.isoformat(), "priority": TIMER_PRIORITY, "request": _request(task)}
        for task in _tasks(state, search)
    ]
    return [*reply, *waiting]


def query_task(original: Callable[..., Any], state: Any, ids: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Adds those tasks that wait, in whatever queue, with the word ``scheduled``; at most ``MAX_TASKS``.

    Source of the shape: celery.worker.control.query_task.
    """
    known: dict[str, Any] = original(state, ids, *args, **kwargs)
    unknown = [task_id for task_id in _valid_ids(ids) if task_id not in known]

    def search(store: "DelayStore") -> Iterator["Waiting"]:
        return (messages[0] for _, messages in by_id.get(store, unknown) if messages)

    found = _tasks(state, search)
    return {task.id: ("scheduled", {**_request(task), "eta": task.due.isoformat()}) for task in found} | known


def _stats(original: Callable[..., Any], state: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Adds what ``delayq doctor`` compares among processes, where the worker is connected by our transport."""
    reply = original(state, *args, **kwargs)
    try:
        channel = channel_of_consumer(state.consumer)
        return reply if channel is None else {**reply, FIELD: facts_of(channel)}
    except Exception as error:  # Celery's own reply has to go out in any case
        logger.error("the options of this worker cannot be told: %s", error)
        return dict(reply)


def _valid_ids(ids: Any) -> list[str]:
    """Returns the task ids, one or several, that a command got, without duplicates and what is no text."""
    return list(dict.fromkeys(given for given in maybe_list(ids) or () if isinstance(given, str)))


def _tasks(state: Any, search: Callable[["DelayStore"], Iterable["Waiting"]]) -> list[DelayedTask]:
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


def _browse(store: "DelayStore", queue: str) -> Iterator["Waiting"]:
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
