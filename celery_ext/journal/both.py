"""How the parts of a store of two ask the journal and Redis."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from celery_ext.journal.journal import Journal

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class PartOfBoth(Generic[T]):
    """A part of a store that is made of a journal and of a Redis store.

    Messages move from the journal to Redis only. So each operation asks the journal first and Redis second: a message
    that is promoted in between is found in Redis. An operation that removes or changes messages asks the journal once
    more, for rows that were made or marked in between.

    Operations that need no journal are those of the Redis store.

    Args:
        redis: The same part of the Redis store.
        journal: The tables.
    """

    def __init__(self, redis: T, journal: Journal) -> None:
        self._redis = redis
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_redis"], name)

    @staticmethod
    def _both(journal: Callable[[], A], redis: Callable[[], B]) -> tuple[A, B]:
        """Asks the journal, then Redis. Returns both answers."""
        found = journal()
        return found, redis()
