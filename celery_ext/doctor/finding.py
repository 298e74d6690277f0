"""What a check finds, and the text of the documentation that explains it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from celery_ext.health import Level

#: How many of several names a finding lists.
NAMED = 5


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


#: What a check returns: all that it finds. Nothing means that all is well.
Findings = Iterator[Finding]


def counted(count: int, one: str, many: str) -> str:
    """Returns a number with the words for one, or for any other number of things."""
    return f"{count:,} {one if count == 1 else many}"


def named(names: Sequence[str]) -> str:
    """Returns the first few of several names, and how many more there are."""
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED:,} more" if len(names) > NAMED else shown


_PACKAGED = Path(__file__).parent / "pages"
_CHECKOUT = Path(__file__).parents[2] / "docs"
_HEADING = re.compile(r"^(#+) (.+)$")
_LEFT_OUT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


class NoSuchText(LookupError):
    """The documentation has no such text."""


def id_of(finding: Finding) -> str:
    """Returns the id of the text that explains a finding, such as ``outage#tls``; empty if there is none."""
    page, _, section = finding.page.partition("#")
    return f"{Path(page).stem}#{section}" if section else Path(page).stem


def explain(text_id: str) -> str:
    """Returns a text of the documentation.

    Args:
        text_id: As ``id_of`` returns it, or the name of an alert, such as ``DelayqNoLeader``.

    Returns:
        A section, or a whole page, as Markdown.

    Raises:
        NoSuchText: There is none of this id.
    """
    name, _, section = text_id.partition("#")
    pages = (page for page in sorted(_pages().rglob("*.md")) if "_build" not in page.parts)
    for page in pages:
        if page.stem == name and (text := _section(page, section) if section else page.read_text("utf-8")):
            return _LEFT_OUT.sub("", text).strip()
    if not section and (text := _section(_pages() / "reference/alerts.md", name.lower())):
        return text.strip()
    raise NoSuchText(f"nothing is called {text_id!r}: give what a finding names, or the name of an alert")


def _pages() -> Path:
    """Returns where the pages are: inside an installed package, or in a checkout."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def _section(page: Path, wanted: str) -> str:
    """Returns the section of a page whose heading has this anchor; empty if there is none."""
    lines: list[str] = []
    depth = 0
    in_code = False
    for line in page.read_text("utf-8").splitlines():
        in_code ^= line.lstrip().startswith("```")
        heading = None if in_code else _HEADING.match(line)
        if heading and depth and len(heading[1]) <= depth:
            break
        if heading and not depth and _anchor(heading[2]) == wanted:
            depth = len(heading[1])
        if depth:
            lines.append(line)
    return "\n".join(lines)


def _anchor(heading: str) -> str:
    """Returns the anchor of a heading. Source: GitHub's rule, which MyST follows."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
