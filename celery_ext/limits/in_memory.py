"""Limits of the store in memory, with which apps are tested: what waits there is in no sub-queue."""

from typing import Any

from celery_ext.limits.store import LimitStore


class MemoryLimits:
    """The counterpart of those operations of ``LimitStore`` that an app uses.

    Args:
        store: The ``MemoryStore``.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def queues(self) -> set[str]:
        """Returns no queue: the plugin itself lets keys take turns, see ``celery_ext/testing/turns.py``."""
        return set()


#: The counterparts of the parts of a store.
PARTS = {LimitStore: MemoryLimits}
