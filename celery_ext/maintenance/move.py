"""Moves the waiting messages of a queue to another queue. Knows the store, and no app."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from redis.exceptions import NoPermissionError

from celery_ext.maintenance.addresses import readdressed
from celery_ext.maintenance.convert import Conversion, convert
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.types import Waiting
from kombu_delayq.store.upkeep.moving import Move

#: How many messages one call reads.
PAGE = 100
#: How often it goes through the queue: once more for messages that came, or were changed, while it was on its way.
PASSES = 3


@dataclass
class QueueMove:
    """The move of the messages of one queue, and how far it is.

    Attributes:
        queue: Name of the queue that they leave.
        to: Name of the queue to which they go.
        moved: Number of messages moved.
        finished: How many of these an earlier move, which was ended half way, had left on their way.
    """

    queue: str
    to: str
    moved: int = 0
    finished: int = 0


def move(store: OperatorStore, work: QueueMove, stop: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Moves waiting messages. They keep id, due time and priority, and those that name their queue name the other.

    May run while the queues are in use, be stopped, and run again. Messages in the other form of backup go to the
    store's own form first.

    Args:
        store: The broker's store.
        work: Names the queues, and receives the counts.
        stop: Whether to stop; it is asked before each call that moves messages.

    Yields:
        How many messages each call has moved.
    """
    yield _finish(store, work)
    for _ in range(PASSES):
        with suppress(NoPermissionError):  # then nobody here sees the other form
            for _ in convert(store, Conversion(work.queue, store.backup)):
                pass
        before = work.moved
        for messages in _pages(store, work.queue):
            if stop():
                return
            moves = [Move(one, readdressed(one.body, work.queue, work.to)) for one in messages if one.body is not None]
            count = store.moving.move_to(work.queue, work.to, moves).count("moved") if moves else 0
            work.moved += count
            yield count
        if work.moved == before:
            return


def move_ready(store: OperatorStore, work: QueueMove, stop: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Moves messages that are ready for a consumer; the arguments are as of ``move``.

    It ends when the queue has as many messages left as came since it began. They keep their order.

    Yields:
        How many messages each call has moved.
    """
    yield _finish(store, work)
    left = store.figures.overview([work.queue])[0].ready
    while left > 0 and not stop():
        lists = store.moving.next_ready(work.queue, min(PAGE, left))
        if not any(lists):
            return
        for at, messages in enumerate(lists):
            new = [(one, readdressed(one, work.queue, work.to)) for one in messages]
            count = store.moving.move_ready(work.queue, work.to, at, new) if new else 0
            work.moved += count
            left -= max(count, 1) if new else 0
            yield count


def _finish(store: OperatorStore, work: QueueMove) -> int:
    count = store.moving.resume(work.queue)
    work.finished += count
    work.moved += count
    return count


def _pages(store: OperatorStore, queue: str) -> Iterator[list[Waiting]]:
    page = None
    while page is None or page.more:
        page = store.scan.browse(queue, page, count=PAGE)
        yield page.messages
