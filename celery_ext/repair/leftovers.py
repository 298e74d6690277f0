"""What processes that are gone have left of remote control and events, and how it is removed."""

from collections.abc import Iterator
from dataclasses import dataclass

from celery_ext.repair.store import RepairStore
from kombu_delayq.store import DelayStore

#: What nobody has used for so long, in s, is of a process that is gone: callers wait for replies for seconds.
IDLE_S = 3600


@dataclass
class Leftovers:
    """What is left of processes that are gone.

    Attributes:
        replies: Number of queues of replies to remote control.
        bindings: Number of sets of names of such queues, and of queues of commands and events.
        bytes: What they take in the memory of Redis; 0 where the server does not tell.
    """

    replies: int = 0
    bindings: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.replies or self.bindings)


def find_leftovers(store: DelayStore, found: Leftovers, *, mend: bool) -> Iterator[int]:
    """Searches the whole database for leftovers, and with ``mend`` removes them. May run while workers do.

    Args:
        store: The broker's store.
        found: Receives the counts.
        mend: Whether to remove them.

    Yields:
        After each round trip, how many leftovers it has found.

    Raises:
        redis.exceptions.NoPermissionError: The user may not ask since when a key is idle.
    """
    part = store.part(RepairStore)
    for page in part.idle_pages(IDLE_S):
        gone = part.forget_idle(page, IDLE_S) if mend else page
        for idle in gone:
            found.replies += idle.kind == "list"
            found.bindings += idle.kind == "set"
            found.bytes += idle.bytes
        yield len(gone)
