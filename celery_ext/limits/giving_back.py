"""Gives the messages of tasks back that have raised ``Backoff``."""

from typing import TYPE_CHECKING

from kombu.log import get_logger

from celery_ext.limits.backoff import Backoff
from celery_ext.limits.key import LIMIT_HEADER
from celery_ext.limits.store import LimitStore
from kombu_delayq.consume import FetchedMessage, FetchedPayload
from kombu_delayq.message import Due, priority_of, to_json

if TYPE_CHECKING:
    from celery.worker.request import Request

logger = get_logger(__name__)


def give_back(request: "Request", rest: Backoff) -> bool:
    """Gives the message of a task back that has raised ``Backoff``, with its place.

    Returns False for a message that our transport has not fetched, such as with ``consume="brpop"``. Its task is sent
    again with the rest as its countdown, as by ``retry()``, and its key does not rest.

    Called in the worker's own process, before Celery handles the end of the task.

    Args:
        request: The worker's request.
        rest: What the task has raised.

    Raises:
        RedisError, OSError: Redis is away. The task counts as failed then; acknowledged late, it runs again.
    """
    message = request._message
    if not isinstance(message, FetchedMessage) or not isinstance(message._raw, FetchedPayload):
        context = request._context
        request.task.signature_from_request(context, countdown=rest.seconds, retries=context.retries).apply_async()
        return False
    channel, raw, tag = message.channel, message._raw, message.delivery_tag
    is_early = request.acknowledged  # of the message, another thread may do so just now
    key = (message.headers or {}).get(LIMIT_HEADER)
    if key:
        step = channel.store.fetching.step_of(priority_of(raw))
        store = channel.store.part(LimitStore)
        was_held = store.back_off(raw.queue, key, rest.seconds, tag, to_json(raw), step, is_early=is_early)
    else:
        due = Due(channel.store.now_ms() + 1000 * rest.seconds, relative=False, task_id=request.id)
        was_held = channel.put_off(raw.queue, raw, due, tag) != "gone"
        if not was_held and is_early:  # acknowledged in Redis already
            was_held = channel.put_off(raw.queue, raw, due, "") != "gone"
    if not was_held:
        logger.warning("task %s raised Backoff, but its message had gone back to its queue before", request.id)
    message.let_go()
    channel.fetcher.wake()  # its next request learns when the rest is over
    request.acknowledged = True
    return True
