"""A connection to PostgreSQL that does not wait for ever for an answer."""

from collections.abc import Generator
from math import ceil
from time import monotonic
from typing import Any, TypeVar

import psycopg

from celery_ext.journal.deadlines import LONG_CALL_S, left_s

T = TypeVar("T")


class NoAnswer(psycopg.OperationalError, TimeoutError):
    """PostgreSQL did not answer in time: it hangs, or its host is away."""


class DeadlineConnection(psycopg.Connection[Any]):
    """Waits for answers as long as ``within`` allows. Limits of PostgreSQL's own do not help where it stands still."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Waits for an answer.

        Raises:
            NoAnswer: It did not come in time. The connection is closed, because the answer may come yet.
        """
        try:
            return super().wait(_limited(gen, monotonic() + left_s(LONG_CALL_S)), *args, **options)
        except NoAnswer:
            self.close()
            raise


def connect(given: dict[str, Any]) -> DeadlineConnection:
    """Connects.

    Args:
        given: Arguments of ``psycopg.connect``.

    Raises:
        NoAnswer: The time is over in which a connection would do.
    """
    given_s = float(given["connect_timeout"])
    wait_s = left_s(given_s if given_s > 0 else LONG_CALL_S)  # 0 would be no limit
    if not wait_s:
        raise NoAnswer("PostgreSQL does not answer")
    return DeadlineConnection.connect(**{**given, "connect_timeout": ceil(wait_s)})


def _limited(steps: Generator[Any, Any, T], until: float) -> Generator[Any, Any, T]:
    """Passes the steps of psycopg on, which goes on every 0.1 s or so without an answer."""
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and monotonic() >= until:
                raise NoAnswer("PostgreSQL does not answer")
            wanted = steps.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
