"""The clock of a test: it goes as the process's own clock goes, plus all that the test has skipped."""

import time
from datetime import UTC, datetime

#: A step of the process's clock that is longer than the time that has passed by so many s was made by somebody, such as
#: freezegun. Shorter ones are the clock's own corrections.
_JUMP_S = 0.5
#: How often to look whether the process's clock goes on. It tells parts of a microsecond.
_LOOKS = 100


class Clock:
    """Tells a test's time, in two ways that differ by how long the test itself takes.

    ``now_s`` goes on by itself. It is the time for a due time that somebody read off the process's clock. ``still_s``
    stands still between two calls of ``skip``. By it a countdown of 30 minutes is over after exactly 30 minutes,
    however slow the test is. When somebody moves the process's clock, both move to where it is then.

    Attributes:
        skipped_s: What the test has skipped, s.
        moves: How often somebody has moved the process's clock, as far as ``still_s`` has seen.
        ticked_s: How long at most the process's clock has gone on by itself since the latest move, s.
    """

    def __init__(self) -> None:
        self.skipped_s = self.ticked_s = 0.0
        self.moves = 0
        self._still_s = self._seen_s = time.time()
        self._seen_monotonic_s = _monotonic_s()

    def now_s(self) -> float:
        """Returns the time, s since the epoch."""
        return time.time() + self.skipped_s

    def now_ms(self) -> float:
        """Returns the time, ms since the epoch."""
        return self.now_s() * 1000

    @property
    def moment(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.now_s(), UTC)

    def still_s(self) -> float:
        """Returns the time that stands still, s since the epoch."""
        seen_s, monotonic_s = time.time(), _monotonic_s()
        step_s, passed_s = seen_s - self._seen_s, monotonic_s - self._seen_monotonic_s
        self._seen_s, self._seen_monotonic_s = seen_s, monotonic_s
        if not -_JUMP_S <= step_s <= passed_s + _JUMP_S:
            self._still_s = seen_s
            self.moves += 1
            # It was moved at some time since the latest look.
            self.ticked_s = passed_s if _is_ticking() else 0.0
        else:
            self.ticked_s += step_s
        return self._still_s + self.skipped_s

    def skip(self, seconds: float) -> None:
        """Skips so many s; nothing if negative."""
        self.skipped_s += max(seconds, 0.0)


def _is_ticking() -> bool:
    seen_s = time.time()
    return any(time.time() != seen_s for _ in range(_LOOKS))


def _monotonic_s() -> float:
    # Libraries that fake the time replace time.monotonic as well.
    return time.clock_gettime(time.CLOCK_MONOTONIC)
