"""What failed runs once more, and a fault fails again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.again import MOST

ROOT = Path(__file__).parents[3]
TESTS = """
from pathlib import Path
import pytest

def once(name):
    mark = Path(name)
    seen = mark.exists()
    mark.touch()
    assert seen

@pytest.mark.xdist_group("a-group")
def test_of_a_group():
    once("group")

@pytest.mark.parametrize("word", ["x:y", "[1]", "a@b"])
def test_with_a_parameter(word):
    once(word)

@pytest.mark.parametrize("n", range({broken}))
def test_broken(n):
    assert False

def test_that_passes():
    with open("passed", "a") as log:
        log.write(".")
"""


@pytest.mark.parametrize(
    ("broken", "status", "summary"),
    [(0, 0, "4 passed"), (1, 1, "1 failed, 4 passed"), (MOST, 1, f"{MOST + 4} failed, 1 passed")],
)
def test_what_failed_runs_once_more(tmp_path: Path, broken: int, status: int, summary: str) -> None:
    """Only what failed runs again, with a group and parameters of any name; too many failures are the end."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_some.py").write_text(TESTS.replace("{broken}", str(broken)))
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.again",
            "-p",
            "xdist",
            "--numprocesses",
            "2",
            "--dist",
            "loadgroup",
            "-q",
            "tests",
        ],
        cwd=tmp_path,
        # Other plugins take seconds to import, in each process.
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert summary in ran.stdout.splitlines()[-1]
    assert (tmp_path / "passed").read_text() == "."
