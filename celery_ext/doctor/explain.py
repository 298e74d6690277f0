"""Finds the text of the documentation that explains a finding, or an alert."""

import re
from pathlib import Path

from celery_ext.doctor.finding import Finding

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
    for page in sorted(_pages().rglob("*.md")):
        if page.stem == name and (text := _section(page, section) if section else page.read_text("utf-8")):
            return _LEFT_OUT.sub("", text).strip()
    if not section and (text := _section(_pages() / "how-to/alerts.md", name.lower())):
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
