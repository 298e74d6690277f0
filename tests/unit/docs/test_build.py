"""The documentation builds, and its tables are those of the code, where Spark is not installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.pages import DOCS

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]  # a busy machine takes its time to build pages

#: Hides Spark from an interpreter that has it, then runs the rest of the command line as ``python`` would.
WITHOUT_SPARK = """
import runpy, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
flag, what, sys.argv = sys.argv[1], sys.argv[2], sys.argv[2:]
if flag == "-c":
    exec(what)
elif flag == "-m":
    runpy.run_module(what, run_name="__main__", alter_sys=True)
else:
    runpy.run_path(what, run_name="__main__")
"""

#: Pages with files, tables and docstrings.
INCLUDING = ("how-to/redisson", "reference/options", "reference/api")


def without_spark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter that has no Spark: ``-c CODE``, ``-m MODULE …`` or ``-f FILE …``."""
    command = [sys.executable, "-c", WITHOUT_SPARK, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_tables_in_pages_are_those_of_the_code() -> None:
    """Every table that is made from the code is current; ``make reference`` writes them, also without Spark."""
    done = without_spark("-f", "docs/generate.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_table_that_is_not_current_is_replaced() -> None:
    """The generator replaces what is between the markers, keeps what is around them, and knows no other names."""
    done = without_spark(
        "-c",
        "import sys; sys.path.insert(0, 'docs'); import generate\n"
        "page = generate.current('before\\n<!-- generated: options -->\\nformer table\\n<!-- end -->\\nafter')\n"
        "assert page.startswith('before\\n') and page.endswith('<!-- end -->\\nafter'), page\n"
        "assert '`max_delay`' in page and 'former table' not in page, page\n"
        "generate.current('<!-- generated: opinions -->\\n<!-- end -->')",
    )
    assert done.stderr.splitlines()[-1] == "KeyError: 'opinions'"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as Sphinx builds it, without a warning."""
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    directory = tmp_path_factory.mktemp("html")
    done = without_spark("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(directory))
    assert done.returncode == 0, done.stderr
    return directory


def test_each_page_is_there_as_markdown(built: Path) -> None:
    """Next to each page that Sphinx builds is its Markdown, without directives, and ``llms.txt`` links each once."""
    pages = {path.relative_to(built).with_suffix("").as_posix(): path for path in built.rglob("*.md")}
    sources = (path.relative_to(ROOT / "docs") for path in DOCS)
    assert pages.keys() == {path.with_suffix("").as_posix() for path in sources if path.parts[0] != "examples"}
    for name, path in pages.items():
        assert path.with_suffix(".html").exists(), name
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# "), name
        assert re.search(r"^(:::|```)\{|^<!-- ", text, re.MULTILINE) is None, name
        for link in re.findall(r"\]\(([^)#\s]+)", text):
            assert "://" in link or (path.parent / link).exists(), (name, link)
    index = (built / "llms.txt").read_text(encoding="utf-8")
    assert index.startswith("# kombu-delayq\n\n> ")
    assert sorted(re.findall(r"^- \[[^\]]+\]\(([\w/-]+)\.md\)", index, re.MULTILINE)) == sorted(pages)


def test_markdown_has_what_pages_include(built: Path) -> None:
    """The Markdown of a page has the files, the tables and the docstrings that its source only names."""
    redisson, options, api = ((built / f"{name}.md").read_text(encoding="utf-8") for name in INCLUDING)
    assert "```java\n/** A queue of Celery tasks" in redisson
    assert "| `max_delay` |" in options
    assert "#### `celery_ext.send_many(app, task, calls," in api
    assert "* **on_sent** (" in api
