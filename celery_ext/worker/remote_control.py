"""Extends Celery's remote-control commands to the tasks that wait in Redis.

``revoke`` and ``terminate`` also remove the waiting messages of their tasks and end their delay chains; ``scheduled``
and ``query_task`` also report waiting tasks; ``stats`` also reports the versions and options that ``delayq doctor``
compares. Each command first runs Celery's own command, and replies in its shape. ``revoke_by_stamped_headers`` is not
extended, because messages cannot be found by their headers. A waiting task with such a stamp is discarded when it is
due, by workers that still know the stamp then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from time import monotonic
from typing import Any

from celery.worker.control import Panel
from kombu.log import get_logger
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_ext.connection import store_of_consumer
from celery_ext.waiting import DelayedTask, revoke
from celery_ext.worker import inspect
from celery_ext.worker.inspect import valid_ids
from kombu_delayq.store import WaitingStore

logger = get_logger(__name__)

#: How long a revoke works before it replies, and how long at a time it works after that, in s. In between, the worker
#: does other work.
FIRST_SLICE_S, NEXT_SLICE_S = 0.5, 0.05
#: Pause between slices in s; without a pause the worker's event loop would run ten of them at once.
PAUSE_S = 0.001


class ExtendedCommand(partial[Any]):
    """Extends one of Celery's commands. Our function gets Celery's as its first argument, and calls it first."""


def extend_commands() -> None:
    """Puts our commands in the place of Celery's, under all their names. A second call changes nothing."""
    ours: dict[str, Callable[..., Any]] = {
        "revoke": _revoke,
        "terminate": _terminate,
        "scheduled": _scheduled,
        "query_task": _query_task,
        "stats": _stats,
    }
    for name, command in ours.items():
        original = Panel.data.get(name)
        if original is not None and not isinstance(original, ExtendedCommand):
            extended = update_wrapper(ExtendedCommand(command, original), original)
            Panel.data.update({alias: extended for alias, found in Panel.data.items() if found is original})


def _revoke(original: Callable[..., Any], state: Any, task_id: Any, *args: Any, **kwargs: Any) -> Any:
    # Celery's part comes first: from then on a consumer discards a message that is transferred just now.
    reply = original(state, task_id, *args, **kwargs)
    _cancel(state, valid_ids(task_id))
    return reply


def _terminate(original: Callable[..., Any], state: Any, signal: Any, task_id: Any, *args: Any, **kwargs: Any) -> Any:
    reply = original(state, signal, task_id, *args, **kwargs)
    _cancel(state, valid_ids(task_id))
    return reply


def _scheduled(original: Callable[..., Any], state: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return [*original(state, *args, **kwargs), *inspect.scheduled(state)]


def _query_task(original: Callable[..., Any], state: Any, ids: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    known = original(state, ids, *args, **kwargs)
    return {**inspect.query_task(state, [task_id for task_id in valid_ids(ids) if task_id not in known]), **known}


def _stats(original: Callable[..., Any], state: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {**original(state, *args, **kwargs), **inspect.stats(state)}


def _cancel(state: Any, ids: list[str]) -> None:
    if store_of_consumer(state.consumer) is not None:
        _run_slice(state, _cancel_each(state, ids), FIRST_SLICE_S)


def _cancel_each(state: Any, ids: list[str]) -> Iterator[None]:
    """Removes the waiting messages of some ids. Pauses after each id, so that the worker can do other work."""
    done = 0
    try:
        dispatcher = partial(getattr, state.consumer, "event_dispatcher")
        for cancelled in revoke.cancel(partial(_open_store, state), ids, state.app, dispatcher):
            done += 1
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
def _open_store(state: Any) -> Iterator[WaitingStore]:
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
