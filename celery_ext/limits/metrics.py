"""The metrics of limits by key: by limit and queue, never by key."""

from collections.abc import Callable, Iterator

from celery_ext.limits.store import LimitStore
from celery_ext.serve.exposition import Family, gauge
from kombu_delayq.store import DelayStore

#: What a log says is left out where Redis refuses to read it.
WHAT = "limits by key"


def families(store: DelayStore, may_see: Callable[[str], bool]) -> Iterator[Family]:
    """Yields the metrics of the limits of queues which the caller may see; none without limits.

    Three round trips: what they cost Redis grows with the tasks that run, and not with the keys and messages.

    Args:
        store: What ``reading`` has returned.
        may_see: Whether the caller may see a queue.
    """
    limits = store.part(LimitStore)
    found = limits.use(sorted(filter(may_see, limits.queues())))
    if not found:
        return
    labels = ("queue", "limit")
    text = "Messages of a limit that wait in sub-queues of a queue; others are in its lists until a fetch sorts them."
    waiting = {(queue, name): count for queue, use in found.items() for name, count in use.waiting.items()}
    yield gauge("delayq_limit_waiting_messages", text, labels, waiting)
    text = "Places that tasks of a limit take, each from its fetch until the task has ended."
    running = {(queue, name): count for queue, use in found.items() for name, count in use.running.items()}
    yield gauge("delayq_limit_running_tasks", text, labels, running)
    text = "Keys of which a message may go now: messages without a key count as one."
    yield gauge("delayq_limit_free_keys", text, ("queue",), {queue: use.free for queue, use in found.items()})
    text = "Keys that rest, because of Backoff or of the rate of their limit."
    yield gauge("delayq_limit_resting_keys", text, ("queue",), {queue: use.resting for queue, use in found.items()})
