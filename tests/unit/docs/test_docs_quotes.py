"""What pages quote of log lines, errors and output is what the code says."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT
from tests.support.pages import blocks
from tests.unit.docs.test_docs import is_there
from tests.unit.docs.test_docs_facts import GAP, said_by, template

PAGES = [
    *(ROOT / "docs" / name for name in ("troubleshooting.md", "index.md")),
    *(ROOT / "docs/how-to" / f"{name}.md" for name in ("monitoring", "cancel", "migrate", "outage", "move", "doctor")),
    *(ROOT / "docs/how-to" / f"{name}.md" for name in ("cluster", "retry-schedule", "transfer-workers")),
    ROOT / "docs/how-to/spark/pressure.md",
]
#: Modules of others whose messages the pages quote.
FOREIGN = ("celery.app.trace", "celery.worker.request", "kombu.transport", "kombu.transport.virtual.base")
#: Errors of Redis, of databases, Spark and Python.
ELSEWHERE = (
    "command not allowed when used memory > 'maxmemory'",
    "this user has no permissions to run the 'evalsha' command",
    "… to access one of the keys used as arguments",
    "has no permissions",
    "Keys in request don't hash to the same slot",
    "password authentication failed",
    "database is locked",
    "ModuleNotFoundError: No module named 'kombu_delayq'",
)
#: Fewest characters by which a text with gaps is recognized, and most words of a value that fills a gap.
LEAST, VALUE = 14, 2
#: What code that is no message begins with.
COMMANDS = (
    "celery ",
    "delayq ",
    "redis-cli ",
    "make ",
    "pip ",
    "import ",
    "CONFIG ",
    ".venv/",
    "cat ",
    "max by ",
    "kombu-delayq[",
)


def sources() -> Iterator[str]:
    """Yields the source of the code, and of what else the pages quote."""
    for package in ("kombu_delayq", "celery_ext"):
        yield from (path.read_text(encoding="utf-8") for path in sorted((ROOT / package).rglob("*.py")))
    for name in FOREIGN:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        yield Path(spec.origin).read_text(encoding="utf-8")


def all_texts() -> set[str]:
    """Returns all texts of the code, with gaps, and the lines of the Lua scripts."""
    found = {text for source in sources() for node in ast.walk(ast.parse(source)) if (text := template(node))}
    found |= {re.sub(r"\{\d[^{}]*\}", GAP, text) for text in found}
    lua = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "lua").rglob("*.lua"))
    return found | {re.sub(r"' \.\. \w+ \.\. '", GAP, line).strip(" '") for line in lua.splitlines()}


def quotes(page: Path) -> Iterator[str]:
    """Yields the lines of output that a page quotes, and the messages that it names within its text."""
    for block in blocks(page, "text"):
        yield from block.splitlines()
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page.read_text(encoding="utf-8")):
        if len(code.split()) > 2 and not code.startswith(COMMANDS):
            yield code


def test_quotes_are_texts_of_the_code() -> None:
    """Each line that is quoted is in the code, with gaps for what differs from case to case."""
    texts = all_texts()
    assert [(page.name, quote) for page in PAGES for quote in quotes(page) if not is_said(quote, texts)] == []


def is_said(quote: str, texts: set[str]) -> bool:
    """Whether the code says a quoted line, behind the name of an exception, or each part of it between wide gaps."""
    name, colon, rest = quote.partition(": ")
    if colon and re.fullmatch(r"(kombu_delayq|celery_ext\.spark)\.errors\.\w+|KeyError|Error", name):
        return ("." not in name or is_there(name)) and is_said(rest.strip("'"), texts)
    parts = [part for part in re.split(r"\s{2,}", quote) if part]
    return quote in ELSEWHERE or all(is_text(part, texts) for part in parts)


def is_text(quote: str, texts: set[str]) -> bool:
    """Whether a text of the code has a quote in it, or becomes it where values or other texts fill its gaps."""
    if any(said_by(quote, text) for text in texts):
        return True
    for text in texts:
        pieces = text.split(GAP)
        if len(pieces) > 1 and sum(map(len, pieces)) >= LEAST and all(piece in quote for piece in pieces):
            found = re.search("(.+?)".join(map(re.escape, pieces)) + ("$" if pieces[-1] == "" else ""), quote)
            filled = [] if found is None else [*found.groups(), quote[: found.start()], quote[found.end() :]]
            if found is not None and all(len(each.split()) <= VALUE or is_text(each, texts) for each in filled):
                return True
    return False


def test_quotes_are_found() -> None:
    """The troubleshooting page quotes many lines, and a text that nobody says is noticed."""
    assert len(list(quotes(PAGES[0]))) > 30
    assert not is_said("no transfer worker has ever run", {"no transfer worker runs"})
