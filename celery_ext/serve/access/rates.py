"""Rate limits: so many requests in a time, which may all come at once."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

#: Length of a period in s, by its unit.
_PERIODS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"([1-9][0-9]{0,8})/([smhd])")


@dataclass(frozen=True)
class Rate:
    """How many requests are let in.

    Attributes:
        count: Requests in a period; so many may come at once.
        period_s: Length of the period in s.
    """

    count: int
    period_s: float

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Reads a rate such as ``100/s``, ``5/m``, ``1000/h`` or ``20000/d``.

        Raises:
            ValueError: The text is no rate.
        """
        if not (found := _RATE.fullmatch(text)):
            raise ValueError(f"{text!r} is no rate: write 100/s, 5/m, 1000/h or 20000/d")
        return cls(int(found[1]), _PERIODS_S[found[2]])


class RateLimiter:
    """Counts the requests of this process, by name. Another process counts its own.

    Args:
        now: A clock in s that never goes back.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._lock = Lock()
        #: When all requests so far would be over, had they come one by one at the rate.
        self._over_at: dict[tuple[str, Rate], float] = {}

    def wait_s(self, name: str, rate: Rate) -> float:
        """Counts a request, if there is room for it.

        The method is the generic cell rate algorithm: a bucket of tokens that is kept as one time.
        Source: ITU-T I.371, annex A.

        Args:
            name: Whose request it is.
            rate: How many that name may send.

        Returns:
            0 if the request may pass; otherwise after how many s the next one may, and nothing is counted.
        """
        interval_s = rate.period_s / rate.count
        with self._lock:
            now = self._now()
            over_at = max(self._over_at.get((name, rate), now), now) + interval_s
            # The period in whole, with room for what floating point makes of sums.
            wait_s = over_at - now - rate.period_s
            if wait_s > 1e-6:
                return wait_s
            self._over_at[name, rate] = over_at
            return 0.0
