"""How the commands print tables, moments and durations."""

from collections.abc import Collection, Sequence
from datetime import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Sets rows in columns.

    Args:
        head: Titles of the columns.
        rows: As many texts a row.
        right: Which columns, counted from 0, are set to the right.
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *rows]
    ]


def moment(iso: str) -> str:
    """Prints an ISO 8601 moment in the local time zone."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def duration(seconds: float, *, plain: bool = False) -> str:
    """Prints a duration by its two largest units: ``in 3h 12m``, ``4.2s ago``.

    Args:
        seconds: From now; negative is past.
        plain: Without ``in`` and ``ago``.
    """
    left = float(abs(seconds))
    left = round(left, 1) if left < 10 else round(left)
    parts = []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{int(left // size)}{unit}")
            left %= size
    if not parts or (len(parts) == 1 and parts[0].endswith("m")):
        parts.append(f"{left:.1f}s" if isinstance(left, float) else f"{left}s")
    text = " ".join(parts[:2])
    if plain:
        return text
    return f"in {text}" if seconds >= 0 else f"{text} ago"
