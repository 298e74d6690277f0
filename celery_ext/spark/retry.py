"""Tries again while the broker cannot take messages."""

import random
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.spark.errors import BrokerUnavailable
from kombu_delayq.errors import AnswerLost
from kombu_delayq.redis.backoff import Backoff
from kombu_delayq.redis.errors import NotPrimary

T = TypeVar("T")
#: Shortest and longest pause before another try, in s.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
#: Errors that go away by themselves: Redis is out of reach, is a replica, is full, or has lost its primary.
_TEMPORARY = (
    *(BrokerUnavailable, AnswerLost, RedisConnectionError, RedisTimeoutError),
    *(NotPrimary, ReadOnlyError, OutOfMemoryError, MasterDownError),
)
#: Words of the same errors in replies for which redis-py has no class, or in which an older Redis reports the error of
#: a script. Further words say that Redis loads its data, cannot save, has too few replicas, or runs a long script.
_TEMPORARY_WORDS = ("LOADING", "READONLY", "OOM ", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY ")


class Retry:
    """Tries again, with growing pauses, until something succeeds or takes too long.

    Args:
        timeout_s: Longest time without progress, in s.

    Attributes:
        also: Further errors that go away by themselves: those of a database beside Redis.
    """

    def __init__(self, timeout_s: float, also: tuple[type[Exception], ...] = ()) -> None:
        self.also = also
        self._timeout_s = timeout_s
        self._since: float | None = None
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def progress(self) -> None:
        """Starts the time anew, because something succeeded."""
        self._since = None
        self._backoff.succeeded()

    def wait(self, reason: object) -> None:
        """Pauses before another try.

        Args:
            reason: Why another try is needed.

        Raises:
            BrokerUnavailable: The time is over.
        """
        now = monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._timeout_s:
            raise BrokerUnavailable(
                f"no message could be sent for {self._timeout_s:g} s, the option write_timeout: {reason}"
            )
        sleep(self._backoff.failed() * random.uniform(0.5, 1))

    def until_done(self, call: Callable[[], T], is_progress: Callable[[T], bool] = lambda _: True) -> T:
        """Repeats a call while it fails with a temporary error, and returns its result.

        Args:
            call: The call.
            is_progress: Whether a result is progress. Without progress the time goes on.

        Raises:
            BrokerUnavailable: The time is over.
        """
        while True:
            try:
                result = call()
            except (RedisError, BrokerUnavailable, AnswerLost) as error:
                if not is_temporary(error):
                    raise
                self.wait(error)
            except self.also as error:
                self.wait(f"the journal's database fails with {type(error).__name__}")
            else:
                if is_progress(result):
                    self.progress()
                return result


def is_temporary(error: Exception) -> bool:
    """Whether the next try may succeed."""
    if isinstance(error, _TEMPORARY):
        return True
    return isinstance(error, ResponseError) and any(word in str(error) for word in _TEMPORARY_WORDS)
