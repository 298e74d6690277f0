"""Pauses between attempts to reach what is away, and the two log lines of an outage."""

from logging import Logger
from time import monotonic

#: Pauses in s between attempts to connect: the first, and the longest, which is within the default poll interval.
BACKOFF_S = (0.1, 1.0)


class Backoff:
    """Pauses between attempts, each twice as long as the one before.

    Args:
        first_s: The first pause, in s.
        longest_s: The longest pause, in s.

    Attributes:
        next_s: The next pause, in s.
    """

    def __init__(self, first_s: float = BACKOFF_S[0], longest_s: float = BACKOFF_S[1]) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self.next_s = first_s

    def failed(self) -> float:
        """Notes a failed attempt. Returns the pause before the next one, in s."""
        pause_s = self.next_s
        self.next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def succeeded(self) -> None:
        """Lets the next pause be the first one again."""
        self.next_s = self._first_s


class Outage:
    """Logs an outage once, however many attempts fail, and its end.

    Args:
        logger: The log for these lines.
        ends: The line at the end, with a ``%.1f`` for its length in s.
        down_since: ``monotonic()`` at the start of an outage that has been logged already and may go on.

    Attributes:
        down_since: ``monotonic()`` at the start of the outage, None if there is none.
    """

    def __init__(self, logger: Logger, ends: str, down_since: float | None = None) -> None:
        self.down_since = down_since
        self._logger = logger
        self._ends = ends
        self._backoff = Backoff()

    def failed(self, line: str) -> float:
        """Notes a failed attempt, and logs the line if it is the first. Returns the pause before the next one, in s."""
        if self.down_since is None:
            self.down_since = monotonic()
            self._logger.error("%s", line)
        return self._backoff.failed()

    def succeeded(self) -> None:
        """Notes an answer, which ends an outage."""
        if self.down_since is not None:
            self._logger.info(self._ends, monotonic() - self.down_since)
            self.down_since = None
            self._backoff.succeeded()
