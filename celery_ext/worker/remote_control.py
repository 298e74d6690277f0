"""Celery's remote-control commands, with what the broker holds.

``revoke`` and ``terminate`` also remove the waiting messages of their tasks and end their delay chains; ``scheduled``
and ``query_task`` also tell of waiting tasks. All do first what Celery's do, and reply in their shape.
``revoke_by_stamped_headers`` is Celery's alone: messages cannot be found by their headers, so a waiting task with such
a stamp is discarded when it is due, by workers that still know the stamp then.
"""

from collections.abc import Callable, Iterator
from functools import partial, update_wrapper
from time import monotonic
from typing import TYPE_CHECKING, Any

from celery.worker.control import Panel
from kombu.log import get_logger

from celery_ext.waiting import by_id
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.revoke import declares_chain, mark_revoked
from celery_ext.worker import inspect
from celery_ext.worker.inspect import store_of_worker, texts

if TYPE_CHECKING:
    from kombu_delayq.store.types import Waiting

logger = get_logger(__name__)

#: How long a revoke works before it replies, and then at a time between other work of the worker, in s.
FIRST_SLICE_S, NEXT_SLICE_S = 0.5, 0.05
#: Pause between slices in s; with none, the worker's event loop would do ten of them at once.
PAUSE_S = 0.001


class Extended(partial[Any]):
    """One of Celery's commands with our part after it, which gets the original as its first argument."""


def extend_commands() -> None:
    """Puts our commands in the place of those that are registered, under all their names; again changes nothing."""
    ours: dict[str, Callable[..., Any]] = {
        "revoke": _revoke,
        "terminate": _terminate,
        "scheduled": _scheduled,
        "query_task": _query_task,
    }
    for name, command in ours.items():
        original = Panel.data.get(name)
        if original is not None and not isinstance(original, Extended):
            extended = update_wrapper(Extended(command, original), original)
            Panel.data.update({alias: extended for alias, found in Panel.data.items() if found is original})


def _revoke(original: Callable[..., Any], state: Any, task_id: Any, *args: Any, **kwargs: Any) -> Any:
    # Celery's first: a message that is transferred just now is then discarded by its consumer.
    reply = original(state, task_id, *args, **kwargs)
    _remove(state, texts(task_id))
    return reply


def _terminate(original: Callable[..., Any], state: Any, signal: Any, task_id: Any, *args: Any, **kwargs: Any) -> Any:
    reply = original(state, signal, task_id, *args, **kwargs)
    _remove(state, texts(task_id))
    return reply


def _scheduled(original: Callable[..., Any], state: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return [*original(state, *args, **kwargs), *inspect.scheduled(state)]


def _query_task(original: Callable[..., Any], state: Any, ids: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    known = original(state, ids, *args, **kwargs)
    return {**inspect.query_task(state, [each for each in texts(ids) if each not in known]), **known}


def _remove(state: Any, ids: list[str]) -> None:
    if store_of_worker(state) is not None:
        _work(state, _removal(state, ids), FIRST_SLICE_S)


def _removal(state: Any, ids: list[str]) -> Iterator[None]:
    """Removes the waiting messages of some ids, and pauses wherever the worker may do other work."""
    done = 0
    try:
        in_use = declares_chain(state.app)
        while done < len(ids):
            part = ids[done : done + by_id.IDS_A_CALL]
            for each in by_id.cancel(store_of_worker(state), part, chains_in_use=in_use):
                if each.outcome == "chain_ended":
                    logger.info("Ending the delay chain of revoked task: %s", each.id)
                for message in each.messages:
                    _mark(state, message)
                    yield
            done += len(part)
            yield
    except GeneratorExit:
        if done < len(ids):
            _say_unsearched(len(ids) - done, "the worker ends, or has lost its broker")
        raise
    except Exception as error:  # whatever it is, Celery's part is done, and the worker has to live
        _say_unsearched(len(ids) - done, error)


def _work(state: Any, steps: Iterator[None], slice_s: float) -> None:
    """Works for a while, and has the worker go on with it between its other work."""
    until = monotonic() + slice_s
    for _ in steps:
        if monotonic() > until:
            state.consumer.timer.call_after(PAUSE_S, _work, (state, steps, NEXT_SLICE_S))
            return


def _mark(state: Any, message: "Waiting") -> None:
    try:
        task = DelayedTask(message)
        # Celery's words.
        logger.info("Discarding revoked task: %s[%s], which waited in queue %s", task.name, task.id, task.queue)
        mark_revoked(state.app, task, state.consumer.event_dispatcher)
    except Exception:
        logger.exception("message %s of queue %s is removed, but not marked as revoked", message.id, message.queue)


def _say_unsearched(count: int, reason: object) -> None:
    logger.error(
        "%d of the revoked ids were not searched among the waiting tasks: %s. "
        "Repeat the revoke; else they are discarded only when they are due, by workers that were not restarted",
        count,
        reason,
    )
