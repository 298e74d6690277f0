"""Durations as people write them: ``250ms``, ``1.5h``, ``1h30m``."""

import re
from fractions import Fraction
from math import isfinite

from kombu_delayq.errors import quoted

#: Length of each unit in s, from the largest to the smallest.
UNITS = {
    "w": Fraction(7 * 86400),
    "d": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}
#: Longest duration in s: 100 years of 365.25 days. A longer one is taken for a slip.
MAX_S = 36_525 * 86400
#: A number in a duration or a percentage: without sign and exponent.
NUMBER = r"[0-9]+(?:\.[0-9]+)?"
#: Separates the durations of a list.
SEPARATOR = re.compile(r"\s*,\s*|\s+")

#: Longest text that is read, in characters; any sensible duration is shorter.
_MAX_LENGTH = 100
#: Units that ``in_words`` uses beside seconds, in s.
_SHOWN = ((86400, "d"), (3600, "h"), (60, "m"))
_DURATION = re.compile("".join(rf"(?:({NUMBER}){unit})?" for unit in UNITS))


class TooLong(ValueError):
    """A text is a duration, of more than 100 years."""


def parse(text: str) -> float:
    """Reads a duration.

    Args:
        text: Decimal numbers, each directly followed by its unit w, d, h, m, s or ms; each unit at most once,
            the largest first.

    Returns:
        The length in s, as the float nearest to the decimal value.

    Raises:
        TooLong: The text is a duration of more than 100 years. It is a ValueError, too.
        ValueError: The text is no duration.
    """
    match = _DURATION.fullmatch(text) if 0 < len(text) <= _MAX_LENGTH else None
    if not match:
        raise ValueError(
            f"{quoted(text)} is not a duration: write a number directly followed by one of the units"
            f" {', '.join(UNITS)}, such as 250ms or 1.5h; write the largest of several first, such as 1h30m"
        )
    # Exact, so that 1.1h and 66m are equal.
    seconds = sum(Fraction(number) * UNITS[unit] for unit, number in zip(UNITS, match.groups(), strict=True) if number)
    if seconds > MAX_S:
        raise TooLong(f"{quoted(text)} is longer than 100 years, the longest duration")
    return float(seconds)


def in_words(seconds: float, *, plain: bool = False) -> str:
    """Returns a duration as text, by its two largest units: ``in 3h 12m``, ``4.2s ago``.

    Args:
        seconds: From now; negative is past. It may be infinite, as the score of a damaged entry is.
        plain: Without ``in`` and ``ago``.
    """
    text = _largest(abs(seconds)) if isfinite(seconds) else "an endless time"
    if plain:
        return text
    return f"in {text}" if seconds >= 0 else f"{text} ago"


def _largest(seconds: float) -> str:
    left = float(seconds)
    left = round(left, 1) if left < 10 else round(left)
    parts = []
    for size, unit in _SHOWN:
        if left >= size:
            parts.append(f"{int(left // size)}{unit}")
            left %= size
    if not parts or (len(parts) == 1 and parts[0].endswith("m")):
        parts.append(f"{left:.1f}s" if isinstance(left, float) else f"{left}s")
    return " ".join(parts[:2])
