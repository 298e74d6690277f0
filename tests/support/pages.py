"""The pages of the documentation, and the code in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

#: The documentation, without what ``make docs`` has built of it.
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def named(page: Path) -> str:
    """Returns the name of a page, for a test's id."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yields the code blocks of a page in some languages."""
    for _, language, code in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language in languages:
            yield code


def commands(page: Path) -> Iterator[list[str]]:
    """Yields the words of each command line in the shell blocks of a page, comments left out."""
    for code in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def page_code(page: Path) -> str:
    """Returns everything that a page sets as code."""
    text = page.read_text(encoding="utf-8")
    return "\n".join([*blocks(page, "sh"), *re.findall(r"`([^`\n]+)`", text)])
