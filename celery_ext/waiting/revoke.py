"""Cancels waiting tasks for apps, the shell and workers, with the result, signal and event of a revoked task."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.signals import task_revoked
from celery.utils.functional import chunks
from kombu.log import get_logger
from kombu.serialization import prepare_accept_content

from celery_ext.celery_tasks import announce_revoked, declares_chain
from celery_ext.waiting import by_id
from celery_ext.waiting.by_id import Cancelled
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.elsewhere import Elsewhere

if TYPE_CHECKING:
    from celery import Celery

    from kombu_delayq.store import DelayStore, Waiting

logger = get_logger(__name__)

#: Text of the ``TaskRevokedError`` that the result becomes.
REASON = "cancelled while it was delayed"


def cancel(
    open_store: Callable[[], AbstractContextManager["DelayStore"]],
    ids: Iterable[str],
    app: "Celery | None",
    dispatcher: Callable[[], Any] = lambda: None,
    only: by_id.Only | None = None,
    places: Sequence[Elsewhere] = (),
) -> Iterator[Cancelled]:
    """Removes waiting tasks, ends the delay chains whose step runs just now, and announces the removed tasks.

    Args:
        open_store: Opens the store of the broker, for ``IDS_A_CALL`` ids at a time.
        ids: Task ids.
        app: The app whose result backend knows the tasks; None to announce nothing.
        dispatcher: Returns the event dispatcher of the worker that cancels; if it returns None, no event is sent.
        only: Says which of the messages of an id are meant; None for all, and for chains of which no step waits.
        places: Where tasks may be that do not wait.

    Yields:
        What became of each id, after it is announced.

    Raises:
        AnswerLost: Redis did not answer. All known removals have been announced and yielded before.
    """
    chains_in_use = app is not None and declares_chain(app)
    for part in chunks(iter(ids), by_id.IDS_A_CALL):
        removed: list[Cancelled] = []
        failure: Exception | None = None
        try:
            with open_store() as store:
                if only is None:
                    removed.extend(by_id.cancel(store, part, chains_in_use=chains_in_use))
                else:
                    removed.extend(by_id.cancel_only(store, part, only))
                others = [cancelled.id for cancelled in removed if not cancelled.messages]
                for place in places if others else ():
                    found = place.cancel(store, others, only)
                    removed = [
                        one._replace(elsewhere=place.outcome, messages=[*one.messages, *found[one.id]])
                        if one.id in found
                        else one
                        for one in removed
                    ]
        except Exception as error:
            failure = error  # messages that were removed before the error have to be announced
        # The store is closed by now: an announcement may continue a chord, which takes a connection from the same pool.
        for cancelled in removed:
            announce_cancelled(app, cancelled.messages, dispatcher())
            yield cancelled
        if failure is not None:
            raise failure


def announce_cancelled(app: "Celery | None", messages: "Iterable[Waiting]", dispatcher: Any = None) -> None:
    """Announces that messages were cancelled, as ``announce_revoked`` does for each of their tasks.

    Args:
        app: The app whose result backend knows the tasks; None to announce nothing.
        messages: The cancelled messages. One that is no task has nothing to announce.
        dispatcher: A worker's event dispatcher; without one no event is sent.
    """
    if app is not None:
        for message in messages:
            _announce_task(app, DelayedTask(message), dispatcher)


def _announce_task(app: "Celery", task: DelayedTask, dispatcher: Any) -> None:
    try:
        if task.name is not None and not _is_heard(app, task.name, dispatcher):
            return
        # Decoded as a worker of this app decodes it: the task's chord may be in a pickle.
        task = replace(task, accept={*task.accept, *prepare_accept_content(app.conf.accept_content or ())})
        if task.name is not None:
            announce_revoked(app, app.tasks.get(task.name), request_of(task), REASON, dispatcher)
    except Exception:  # the message is gone already, and the next ones have to be announced, too
        logger.exception("task %s is cancelled, but its result stays as it was", task.id)


def _is_heard(app: "Celery", name: str, dispatcher: Any) -> bool:
    """Whether a result, a signal or an event may say that a task of this name was cancelled."""
    if dispatcher is not None or task_revoked.receivers:
        return True
    task = app.tasks.get(name)
    return type(app.backend if task is None else task.backend) is not DisabledBackend


def request_of(task: DelayedTask) -> Any:
    """Returns the request that a waiting task would have in a worker."""
    embed = task.embed
    return Context(
        {
            **task.headers,
            **{name: embed.get(name) for name in ("callbacks", "errbacks", "chain", "chord")},
            "id": task.id,
            "args": task.args,
            "kwargs": task.kwargs,
            "properties": task.properties,
        }
    )
