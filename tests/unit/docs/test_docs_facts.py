"""What the documentation says of log lines, options and their defaults is what the code has."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kombu.transport import redis as stock

from celery_ext.delays.levels import DEFAULT
from celery_ext.spark.options import WriteOptions
from kombu_delayq import options
from kombu_delayq.transport import Channel
from tests.support import ROOT
from tests.support.pages import PAGES, blocks, named

#: Where a log line is looked for.
LOGS = ROOT / "docs/reference/log-lines.md"
LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "CRITICAL"}
#: What threads in the background log, by the attribute that has it.
THREADS = {"_fault_line": "ERROR", "_refused_line": "CRITICAL"}
#: The level at which a worker logs what has a level of its own for other callers.
CHOSEN = "ERROR"
#: What stands in a message for a value, in the documentation, in the text of a log call, and in an f-string.
GAP = "…"
#: Names of settings of transports, where pages set them.
OPTIONS = ("broker_transport_options", "transport_options")
UNITS = {"s": 1, "minutes": 60, "hour": 3600, "day": 86_400, "days": 86_400}


def sources() -> Iterator[ast.Module]:
    """Yields the code of workers and commands; Spark's processes say what they have to say elsewhere."""
    for package in ("kombu_delayq", "celery_ext"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if not {"demo", "spark"} & set(path.relative_to(ROOT).parts):
                yield ast.parse(path.read_text(encoding="utf-8"))


def template(node: ast.AST) -> str | None:
    """Returns a text with gaps for what is filled in; None when a node is no text."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else GAP for each in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%(?:\(\w+\))?[-+.\d]*[a-z]", GAP, node.value)
    return None


def said_by(text: str, logged: str) -> bool:
    """Whether the pieces of a documented message are in a text of the code, in their order."""
    at = 0
    for piece in (piece.strip() for piece in text.split(GAP)):
        if len(piece) > 5:
            at = logged.find(piece, at) + len(piece)
            if at < len(piece):
                return False
    return True


def logged_by_docs() -> list[tuple[str, list[str]]]:
    """Returns the level of each message that the page lists, by its heading, and what the messages have in them."""
    found, level = [], ""
    for line in LOGS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            level = line[3:]
        elif line.startswith("- `"):
            found.append((level, quoted(line[2 : line.find("`:") + 1] or line[2:])))
    return found


def quoted(cell: str) -> list[str]:
    """Returns what a cell sets as code, also where the code has a backtick in it."""
    return [code for _, code in re.findall(r"(`+) ?(.+?) ?\1(?!`)", cell)]


def test_a_documented_log_message_is_in_the_code() -> None:
    """Each message on the page of log lines is logged by some code of ours."""
    texts = {text for tree in sources() for node in ast.walk(tree) if (text := template(node))}
    rows = logged_by_docs()
    parts = [part for _, several in rows for part in several]
    assert parts
    assert [part for part in parts if said_by(part, "")] == [], "any message would do"
    assert [part for part in parts if not any(said_by(part, text) for text in texts)] == []


def calls() -> Iterator[tuple[str, str]]:
    """Yields level and text of each message of a worker from WARNING on."""
    for tree in sources():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("logger"), attr="log"),
                    args=[ast.Attribute(attr="_level"), first, *_],
                ) if text := template(first):
                    yield CHOSEN, text
                case ast.Call(func=ast.Attribute(value=ast.Name("logger"), attr=attr), args=[first, *_]):
                    text = template(first)
                    if attr in LEVELS and text and text != GAP:
                        yield LEVELS[attr], text
                case ast.Assign(targets=[ast.Name(name)], value=line) if name in THREADS and (text := template(line)):
                    yield THREADS[name], text


def test_a_log_message_is_documented() -> None:
    """Each message from WARNING on is on the page of log lines, below its level."""
    rows, logged = logged_by_docs(), list(calls())
    assert logged
    for level, text in logged:
        assert any(said == level and all(said_by(part, text) for part in parts) for said, parts in rows), (level, text)


def options_set_by(page: Path) -> Iterator[str]:
    """Yields the names of transport options that the Python blocks of a page set."""
    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            match node:
                case ast.Assign(targets=[ast.Name(name) | ast.Attribute(attr=name)], value=ast.Dict(keys=keys)) if (
                    name in OPTIONS
                ):
                    yield from (key.value for key in keys if isinstance(key, ast.Constant))  # type: ignore[misc]


def test_transport_options_of_examples_are_read() -> None:
    """Every transport option that an example sets is one of ours or of kombu's."""
    read = options.NAMES | set(Channel.from_transport_options) | set(stock.SentinelChannel.from_transport_options)
    for page in PAGES:
        assert set(options_set_by(page)) <= read, named(page)


def defaults(page: Path) -> Iterator[tuple[str, float]]:
    """Yields the options whose default a page gives, such as "`poll_interval` (default 1 s)", and the default in s."""
    text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
    for form in (
        r"`([a-z_]+)`[\w ]{0,10} ?\(default X\)",
        r"`([a-z_]+)`[\w ]{0,10}, by default X",
        r"`([a-z_]+)`, X by default",
    ):
        for name, number, unit in re.findall(form.replace("X", r"(\d+|a) (\w+)"), text):
            yield name, (1.0 if number == "a" else float(number)) * UNITS[unit]


def default_of(name: str) -> Any:
    """Returns the default of a transport option of ours or kombu's, or of one of Spark's writer."""
    if name in options.NAMES:
        return getattr(options.Options(), name)
    spark = {field.name: field.default for field in dataclasses.fields(WriteOptions)}
    return spark[name] if name in spark else getattr(stock.Channel, name)


def test_defaults_are_those_of_the_code() -> None:
    """Where a page gives the default of an option, it is the one of the code."""
    for page in PAGES:
        assert [(name, given) for name, given in defaults(page) if default_of(name) != given] == [], named(page)


def test_defaults_are_found() -> None:
    """The pages give some defaults, and the test above sees them."""
    found = {name for page in PAGES for name, _ in defaults(page)}
    assert found >= {"poll_interval", "unacked_mutex_expire", "visibility_timeout"}
    assert found >= {"job_ttl", "write_timeout"}


def test_the_table_of_delay_levels_is_the_default() -> None:
    """The page on delay levels has the table that is used."""
    rows = (ROOT / "docs/how-to/retry-schedule.md").read_text(encoding="utf-8").splitlines()
    levels, delays = ([cell.strip() for cell in row.split("|")[2:-1]] for row in rows if row.startswith(("| l", "| d")))
    assert delays == DEFAULT.split()
    assert levels == [str(level) for level in range(1, len(delays) + 1)]
