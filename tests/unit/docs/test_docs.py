"""The documentation: it leaves nothing out, and names only what exists."""

import ast
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib.util import find_spec

import click
import pytest
from click.testing import CliRunner

from celery_ext.cli import delayq
from celery_ext.dead_letters.keys import LetterKeys
from celery_ext.spark.keys import JobKeys
from kombu_delayq.options import LAYOUTS, NAMES
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support import ROOT
from tests.support.pages import PAGES, blocks, commands, named, page_code

#: Directories that a code path may begin with.
OURS = ("kombu_delayq", "celery_ext", "lua", "tests", "docs")


def test_reference_names_every_option_key_and_command() -> None:
    """The pages made from the code name all that the code has."""
    keys, jobs = Keys(), JobKeys(Keys())
    of_queue = {key for layout in LAYOUTS for key in LAYOUT_OF[layout].keys(keys, "orders")}
    of_queue |= {RedissonKeys(keys).channel("orders"), LetterKeys(keys).replaying("orders")}
    of_job = {jobs.job("nightly"), jobs.guard("nightly"), jobs.stream("clicks")}
    of_all = {keys.queues, keys.cancelled, keys.chains, *keys.leases, jobs.runs, keys.wake}
    of_all |= {keys.unacked(""), keys.unacked_index(""), keys.consumers(""), keys.consumed("")}
    expected = {"options": NAMES, "keys": of_queue | of_job | of_all, "commands": set(names_of(delayq, "delayq"))}
    for page, names in expected.items():
        text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
        assert {name for name in names if f"`{name}`" not in text} == set(), page


def names_of(command: click.Command, name: str) -> Iterator[str]:
    """Yields the full name of a command and of all its subcommands."""
    yield name
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from names_of(each, f"{name} {each.name}")


def test_code_paths_exist() -> None:
    """Every path into the repository that a page mentions is there."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        paths = re.findall(rf"`((?:{'|'.join(OURS)})/[\w./*-]*)`", text)
        missing = [path for path in paths if not list(ROOT.glob(path.rstrip("/")))]
        assert missing == [], named(page)
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
        assert [link for link in links if link and not (page.parent / link).exists()] == [], named(page)


def test_dotted_names_exist() -> None:
    """Every module of ours, and every name in one, that a page mentions is there."""
    for package in ("pyspark", "django"):
        pytest.importorskip(package)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        names = re.findall(r"\b((?:kombu_delayq|celery_ext)(?:\.[a-zA-Z_]+)+)", text)
        assert [name for name in names if not name.endswith((".py", ".lua")) and not is_there(name)] == [], named(page)


def is_there(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        module, _, last = name.rpartition(".")
        source = (ROOT / module.replace(".", "/")).with_suffix(".py")
        # With an older Django than the module needs, its text has to tell.
        text = source.read_text(encoding="utf-8") if source.exists() and find_spec("django.tasks") is None else ""
        return "from django.tasks import" in text and f"\nclass {last}(" in text
    return True


def test_code_blocks_are_valid() -> None:
    """Every Python, JSON and shell block of a page can be parsed."""
    for page in PAGES:
        for code in blocks(page, "python"):
            ast.parse(code, named(page))
        for code in blocks(page, "json"):
            json.loads(code)
        list(commands(page))


def test_delayq_commands_are_understood() -> None:
    """Every ``delayq`` command line of a page has options and subcommands that there are."""
    for page in PAGES:
        for words in commands(page):
            if words[0] == "delayq" or (words[0] == "celery" and "delayq" in words):
                done = CliRunner().invoke(delayq, [*words[words.index("delayq") + 1 :], "--help"])
                assert done.exit_code == 0, done.output


def test_make_targets_exist() -> None:
    """Every ``make`` target that a page mentions is in the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    mentioned = {target for page in PAGES for target in re.findall(r"\bmake ([a-z-]+)\b", page_code(page))}
    assert {"demo", "test"} <= mentioned <= targets
