"""Writes the limits that a worker declares, when it starts."""

from collections.abc import Sequence

from kombu.log import get_logger
from redis.exceptions import RedisError

from celery_ext.limits.limit import Limit
from celery_ext.limits.store import LimitStore
from kombu_delayq.store import DelayStore

logger = get_logger(__name__)


def declare_limits(store: DelayStore, queues: Sequence[str]) -> None:
    """Writes the option ``limits`` for queues. Keys that wait get their turns by it at once."""
    limits = {name: Limit.of(given) for name, given in (store.options.limits or {}).items()}
    part = store.part(LimitStore)
    if limits and store.options.consume == "brpop":
        logger.warning("this worker passes by all limits, because of consume='brpop': %s", ", ".join(sorted(limits)))
    try:
        changed = part.declare(limits, queues)
        for queue in changed:
            part.refresh(queue)
    except RedisError as error:
        logger.warning("the limits of this worker are not written, so those before still hold: %s", error)
    else:
        if changed:
            said = "; ".join(f"{name}: {limit.words}" for name, limit in sorted(limits.items())) or "none"
            logger.info("limits by key are now: %s", said)
