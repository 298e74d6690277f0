"""Moves the delayed messages of a queue to another layout. Knows the store, and no app."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from redis.exceptions import ResponseError

from kombu_delayq.store import WaitingStore


@dataclass
class Conversion:
    """The conversion of one queue, and how far it is.

    Attributes:
        queue: Name of the queue.
        to: Layout to which its messages go.
        moved: Number of messages moved.
        lost: Number of index entries without a body, which are removed: these messages are lost.
        came: At least how many messages came in the other layout meanwhile. They are moved, too.
        stranded: Number of bodies without an index entry, which stay where they are.
    """

    queue: str
    to: str
    moved: int = 0
    lost: int = 0
    came: int = 0
    stranded: int = 0


def convert(store: WaitingStore, conversion: Conversion) -> Iterator[None]:
    """Moves messages until none is left in the other layout. May run while the queue is in use, and run again.

    Args:
        store: The broker's store.
        conversion: Names the queue and the form, and receives the counts.

    Yields:
        Once for each message that is moved or lost.
    """
    left = 0
    with suppress(ResponseError):  # a key has the wrong type; the conversion below raises an error that names it
        left = store.queues.convertible(conversion.queue, conversion.to)
    if left:
        store.queues.know(conversion.queue)  # the transfer workers may not know a queue of another client yet
    while True:
        done = store.queues.convert(conversion.queue, conversion.to)
        conversion.moved += done.moved
        conversion.lost += done.lost
        conversion.came += max(done.moved + done.lost + done.left - left, 0)
        conversion.stranded = done.stranded
        left = done.left
        for _ in range(done.moved + done.lost):
            yield
        if not left:
            return
