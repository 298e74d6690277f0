"""Pauses between attempts to reach what is away."""

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
