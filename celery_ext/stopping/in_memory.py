"""Running tasks of the store in memory, with which apps are tested: a test runs one at a time, and asks none."""

from collections.abc import Sequence
from typing import Any

from celery_ext.stopping.store import StopStore


class MemoryStops:
    """The counterpart of those operations of ``StopStore`` that an app uses.

    Args:
        store: The ``MemoryStore``.
    """

    def __init__(self, store: Any) -> None:
        pass

    def ask(self, ids: Sequence[str]) -> list[str]:
        """Asks nobody."""
        return []

    def running(self, ids: Sequence[str]) -> list[str]:
        """Returns none."""
        return []


#: Counterparts of this feature's parts of a store, by their classes.
PARTS = {StopStore: MemoryStops}
