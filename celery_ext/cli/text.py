"""How the commands print tables, moments and durations."""

import shutil
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

#: How many characters of the last column a table has at least.
LAST_COLUMN = 12
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def escaped(text: str) -> str:
    """Returns a text for the terminal: what is not printable, such as a control character, as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str, length: int) -> str:
    """Returns a text of at most ``length`` characters, with an ellipsis where the end is missing."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


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


def fitted(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), *, title: int) -> list[str]:
    """Sets rows in columns that fit the terminal: with less of the last column, or else a block for each row.

    Where stdout is no terminal, each row is a line, whatever its length.

    Args:
        head: Titles of the columns.
        rows: As many texts a row.
        right: Which columns, counted from 0, are set to the right.
        title: Which column heads a block.
    """
    lines = table(head, rows, right)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if not width or max(map(len, lines)) <= width:
        return lines
    left = width - sum(max(map(len, column)) + 2 for column in list(zip(head, *rows, strict=True))[:-1])
    if left >= LAST_COLUMN:
        return table(head, [[*row[:-1], shortened(row[-1], left)] for row in rows], right)
    return [line for row in rows for line in _block(head, row, title)]


def _block(head: Sequence[str], row: Sequence[str], title: int) -> list[str]:
    indent = max(map(len, head)) + 2
    cells = [
        f"  {name.lower():<{indent}}{cell}"
        for at, (name, cell) in enumerate(zip(head, row, strict=True))
        if at != title and cell
    ]
    return [row[title], *cells]


def iso(ms: float) -> str | None:
    """Returns a moment in ISO 8601 and UTC; None for one that the calendar does not have.

    Args:
        ms: Ms since the epoch.
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def moment(iso: str) -> str:
    """Prints an ISO 8601 moment in the local time zone."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def when(ms: float, now_ms: float) -> str:
    """Prints a moment in the local time zone and from now: ``2026-11-21 15:04:05 CET (in 3h 12m)``.

    Args:
        ms: Ms since the epoch.
        now_ms: Redis's clock.
    """
    try:
        return f"{moment(iso(ms) or '')} ({duration((ms - now_ms) / 1000)})"
    except (ValueError, OverflowError, OSError):  # the score of a damaged entry may be any number
        return f"{ms:.0f} ms since 1970"


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
