"""Messages of tasks that have no retry left, in a queue of their own until somebody replays them."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kombu.entity import Exchange, Queue
from kombu.log import get_logger

from kombu_delayq.message import CHAIN_ID

if TYPE_CHECKING:
    from celery_ext.chains import DelayChain

logger = get_logger(__name__)

#: Message property that tells why a message is among the dead letters.
DEAD_LETTER = "dead_letter"
#: Most characters kept of an error.
ERROR_LENGTH = 1000


def bury(task: Any, chain: "DelayChain | None", exception: Any) -> None:
    """Puts the message of the task that just runs into its dead letter queue, with the reason.

    It is published as it was first sent, so that it can be consumed or replayed as it is: without retries, without
    the expiry, and outside the chord, which has failed without it. Where that fails, it is logged, and the task fails
    with its own error all the same.

    Args:
        task: It names the queue, as ``dead_letter``.
        chain: Its retry schedule, if it has one.
        exception: Why it failed; None for the exception that is handled just now.
    """
    request = task.request
    info = request.delivery_info or {}
    error = exception if exception is not None else sys.exc_info()[1]
    reason = {
        "reason": "delay chain exhausted" if chain is not None else "retries exhausted",
        "error": _text_of(error)[:ERROR_LENGTH] if error is not None else None,
        "retries": request.retries,
        "exchange": info.get("exchange"),
        "routing_key": info.get("routing_key"),
        "worker": request.hostname,
        "at": datetime.now(UTC).isoformat(),
    }
    # By the default exchange, which needs no declaration, whether or not the app may create queues.
    queue = Queue(task.dead_letter, Exchange(""), routing_key=task.dead_letter)
    letter = task.signature_from_request(request, queue=queue, retries=0, expires=None, chord=None)
    letter.options.pop(CHAIN_ID, None)  # replayed, it begins a chain
    try:
        letter.apply_async(add_to_parent=False, **{DEAD_LETTER: reason})
    except Exception:  # a serializer's, a broker's; the task is to fail with its own
        logger.exception("task %s[%s] could not be put into %r", task.name, request.id, task.dead_letter)


def _text_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as reason:  # the error's own, which is anybody's
        return f"{type(error).__name__}, which cannot be shown: {reason!r}"
