"""Spaces the attempts to reach a Redis that is down, and logs the outage once, however many attempts fail."""

from logging import Logger
from time import monotonic

#: Pauses in s between attempts: the first, and the longest. The longest is within the default poll interval.
BACKOFF_S = (0.1, 1.0)


class Backoff:
    """The pauses between attempts during an outage, and the log lines at its start and its end.

    Args:
        logger: The log for these lines.
        down_since: ``monotonic()`` at the start of an outage that has been logged already and may go on.
    """

    def __init__(self, logger: Logger, down_since: float | None = None) -> None:
        self._logger = logger
        self._down_since = down_since
        self._pause_s = BACKOFF_S[0]

    @property
    def down_since(self) -> float | None:
        """``monotonic()`` at the start of the outage, None if there is none."""
        return self._down_since

    def failed(self, error: Exception) -> float:
        """Notes a failed attempt. Returns the pause before the next one, in s."""
        if self._down_since is None:
            self._down_since = monotonic()
            self._logger.error("Redis cannot be used, delayed messages wait: %s: %s", type(error).__name__, error)
        pause_s = self._pause_s
        self._pause_s = min(pause_s * 2, BACKOFF_S[1])
        return pause_s

    def succeeded(self) -> None:
        """Notes that Redis has answered, which ends an outage."""
        if self._down_since is not None:
            self._logger.info("Redis can be used again after %.1f s", monotonic() - self._down_since)
            self._down_since = None
            self._pause_s = BACKOFF_S[0]
