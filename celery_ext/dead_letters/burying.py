"""Buries tasks that have failed for good: puts their messages into a dead letter queue."""

import sys
from time import sleep
from traceback import format_exception
from typing import Any

from celery.exceptions import Reject, TimeLimitExceeded, WorkerLostError
from kombu.entity import Exchange, Queue
from kombu.log import get_logger

from kombu_delayq.errors import InvalidDeadLetter, did_you_mean, quoted
from kombu_delayq.message import CHAIN_ID, DEAD_LETTER, Reason, record, text_of
from kombu_delayq.redis import AWAY

logger = get_logger(__name__)

#: When a task's message is buried: after its last retry, or after any failure that is final. The first is the default.
OCCASIONS = ("exhausted", "failure")
#: How long a task whose retry or dead letter was refused keeps its place before its message goes back, in s. It would
#: run again a hundred times a second.
PAUSE_S = 5.0
#: The app's setting for tasks without a ``dead_letter_on``.
SETTING = "delayq_dead_letter_on"


def check_occasion(given: Any, where: str) -> str:
    """Returns when messages are buried: one of ``OCCASIONS``.

    Args:
        given: Value of ``dead_letter_on`` or of the setting; None for the default.
        where: Names the task or the setting, for the error.

    Raises:
        InvalidDeadLetter: The value is not one of ``OCCASIONS``.
    """
    if given is None:
        return OCCASIONS[0]
    if isinstance(given, str) and given in OCCASIONS:
        return given
    hint = did_you_mean(given, OCCASIONS)
    raise InvalidDeadLetter(f"{where} is one of {', '.join(map(repr, OCCASIONS))}, not {quoted(given)}{hint}")


def reason_of(error: BaseException) -> Reason:
    """Returns the reason for the dead letter of a task that failed, whether or not it had retries left."""
    if isinstance(error, TimeLimitExceeded):
        return Reason.TIME_LIMIT
    return Reason.WORKER_LOST if isinstance(error, WorkerLostError) else Reason.FAILED


def bury(task: Any, request: Any, reason: Reason, exception: Any) -> None:
    """Puts the message of a task that has failed into its dead letter queue, with the reason, once.

    Args:
        task: The task, with a ``dead_letter_queue``.
        request: The request that failed.
        reason: Why it is buried.
        exception: Why it failed; None for the exception that is being handled.
    """
    publish_letter(task, request, told_of(request, reason, exception))


def told_of(request: Any, reason: Reason, exception: Any) -> dict[str, Any]:
    """Returns what the dead letter of a request tells. The arguments are those of ``bury``."""
    info = request.delivery_info or {}
    error = exception if exception is not None else sys.exc_info()[1]
    return record(
        reason,
        None if error is None else text_of(error),
        traceback=None if error is None else _traceback_of(error),
        retries=request.retries,
        exchange=info.get("exchange"),
        routing_key=info.get("routing_key"),
        worker=request.hostname,
    )


def publish_letter(task: Any, request: Any, told: dict[str, Any]) -> None:
    """Publishes the dead letter of a request, once.

    The message is published as it was first sent, so that it can be consumed or replayed: without retries, without
    expiry, and outside its chord, which has failed. If publishing fails, that is logged: the message goes back and the
    request is ``refused``, which says why, where ``can_go_back`` says so; else the task fails with its own error. So
    does one that came from that queue, whose worker would run its letter again and again.

    Args:
        task: The task, with a ``dead_letter_queue``.
        request: The request that failed.
        told: What ``told_of`` returned for it.
    """
    if request.get("buried"):
        return
    request.buried = True
    info = request.delivery_info or {}
    if not info.get("exchange") and info.get("routing_key") == task.dead_letter_queue:
        logger.error(
            "task %s[%s] has failed in %r, where its dead letters are: it is not put there once more",
            task.name,
            request.id,
            task.dead_letter_queue,
        )
        return
    try:
        # Through the default exchange, which needs no declaration, even if the app may not create queues.
        queue = Queue(task.dead_letter_queue, Exchange(""), routing_key=task.dead_letter_queue)
        letter = task.signature_from_request(request, queue=queue, retries=0, expires=None, chord=None, countdown=None)
        letter.options.pop(CHAIN_ID, None)  # when it is replayed, its chain begins anew
        _send(task, letter, {"add_to_parent": False, DEAD_LETTER: told})
    except Exception as error:  # publishing failed; the task still fails with its own error
        if can_go_back(task, error):
            request.refused = text_of(error)
        what = "; its message goes back" if request.get("refused") else ""
        logger.exception("task %s[%s] could not be put into %r%s", task.name, request.id, task.dead_letter_queue, what)


def can_go_back(task: Any, error: Any) -> bool:
    """Whether the message of a task goes back whose dead letter or retry could not be published.

    It is acknowledged late, and the error is one of the broker, which is away, full, or refuses.
    """
    return bool(task.acks_late) and isinstance(error, AWAY)


def going_back(error: str) -> Reject:
    """Returns, after a pause, what lets Celery give a message back. Called where the task has run.

    Args:
        error: Why its dead letter or retry could not be published.
    """
    sleep(PAUSE_S)
    return Reject(error, requeue=True)


def _send(task: Any, letter: Any, options: dict[str, Any]) -> None:
    try:
        letter.apply_async(**options)
    except TypeError:  # Celery checks the arguments here; the task may have failed because they are wrong
        options = {**task._get_exec_options(), **letter.options, **options}
        task.app.send_task(task.name, letter.args, letter.kwargs, **options)


def _traceback_of(error: BaseException) -> str | None:
    """Returns where an error was raised, as Python prints it; None for one that was only given to ``retry``."""
    return None if error.__traceback__ is None else "".join(format_exception(error))
