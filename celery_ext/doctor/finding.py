"""What a check finds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: How many of several names a finding lists.
NAMED = 5


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"

    @property
    def is_bad(self) -> bool:
        """Whether somebody has to do something."""
        return self in (Level.WARNING, Level.ERROR)


@dataclass(frozen=True)
class Finding:
    """What a check finds.

    Attributes:
        level: How bad it is.
        found: What was found, in a sentence or two. Has no password.
        do: What to do about it; empty if nothing.
        page: The page of the documentation, below ``docs/``; empty if there is none. ``explain`` has its text.
        check: Name of the check.
    """

    level: Level
    found: str
    do: str = ""
    page: str = ""
    check: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        return {"check": self.check, "level": str(self.level), "found": self.found, "do": self.do, "page": self.page}


#: What a check returns: all that it finds. Nothing means that all is well.
Findings = Iterator[Finding]


def counted(count: int, one: str, many: str) -> str:
    """Returns a number with the words for one, or for any other number of things."""
    return f"{count:,} {one if count == 1 else many}"


def named(names: Sequence[str]) -> str:
    """Returns the first few of several names, and how many more there are."""
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED:,} more" if len(names) > NAMED else shown
