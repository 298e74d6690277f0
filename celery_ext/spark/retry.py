"""How long a job waits for a broker that cannot take its messages just now."""

import random
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.spark.errors import BrokerUnavailable
from kombu_delayq.connection.demotion import NotPrimary
from kombu_delayq.errors import AnswerLost

T = TypeVar("T")
#: Shortest and longest pause before another try, in s.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
#: What says that Redis will take commands again: it is out of reach, is a replica, is full, or has lost its primary.
_PASSING = (
    *(BrokerUnavailable, AnswerLost, RedisConnectionError, RedisTimeoutError),
    *(NotPrimary, ReadOnlyError, OutOfMemoryError, MasterDownError),
)
#: The same in words, where the client has no class for it, or an older Redis says it of a script; besides, that Redis
#: loads its data, cannot save, has no replicas, or is busy with a script.
_PASSING_WORDS = ("LOADING", "READONLY", "OOM ", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY ")


class Retry:
    """Waits, with growing pauses, until something can be done.

    Args:
        timeout_s: How long in all without any progress, in s.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def progress(self) -> None:
        """Notes that something was done: the time begins anew."""
        self._since = None
        self._pause_s = FIRST_PAUSE_S

    def wait(self, reason: object) -> None:
        """Waits before another try.

        Args:
            reason: Why it is needed.

        Raises:
            BrokerUnavailable: It has been too long.
        """
        now = monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._timeout_s:
            raise BrokerUnavailable(
                f"no message could be sent for {self._timeout_s:g} s, the option write_timeout: {reason}"
            )
        sleep(self._pause_s * random.uniform(0.5, 1))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def until_done(self, call: Callable[[], T], is_progress: Callable[[T], bool] = lambda _: True) -> T:
        """Returns what a call returns, repeating it while the broker cannot answer it.

        Args:
            call: What to do.
            is_progress: Whether what it returns is progress; if not, the time to wait goes on.

        Raises:
            BrokerUnavailable: It could not for too long.
        """
        while True:
            try:
                result = call()
            except (RedisError, BrokerUnavailable, AnswerLost) as error:
                if not passes(error):
                    raise
                self.wait(error)
            else:
                if is_progress(result):
                    self.progress()
                return result


def passes(error: Exception) -> bool:
    """Whether an error may be gone at the next try."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, ResponseError) and any(word in str(error) for word in _PASSING_WORDS)
