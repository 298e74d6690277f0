"""Reports an outage once, however often it is met, and spaces the attempts to end it."""

from logging import Logger
from time import monotonic

#: Pauses in s between attempts: the first, and the longest. The longest is within the default poll interval.
BACKOFF_S = (0.1, 1.0)


class Outage:
    """The state of a connection that may be down.

    Args:
        logger: Where the beginning and the end of an outage are told.
        since: ``monotonic()`` at the start of an outage that was told already and is not known to be over.
    """

    def __init__(self, logger: Logger, since: float | None = None) -> None:
        self._logger = logger
        self._since = since
        self._pause_s = BACKOFF_S[0]

    @property
    def since(self) -> float | None:
        """``monotonic()`` at the start of the outage, None if there is none."""
        return self._since

    def goes_on(self, error: Exception) -> float:
        """Notes a failed attempt. Returns the pause in s before the next."""
        if self._since is None:
            self._since = monotonic()
            self._logger.error("Redis cannot be used, delayed messages wait: %s: %s", type(error).__name__, error)
        pause_s = self._pause_s
        self._pause_s = min(pause_s * 2, BACKOFF_S[1])
        return pause_s

    def is_over(self) -> None:
        """Notes that Redis has answered."""
        if self._since is not None:
            self._logger.info("Redis can be used again after %.1f s", monotonic() - self._since)
            self._since = None
            self._pause_s = BACKOFF_S[0]
