"""What a release needs: one version, a changelog that has it, ways to install and to report, and a workflow."""

import os
import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path
from runpy import run_path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from kombu_delayq import __version__
from tests.support import ROOT
from tests.support.pages import PAGES, commands, named

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CI = ".ci/run"


def test_the_version_stands_in_one_place() -> None:
    """Only the package has the version; what is built or said takes it from there."""
    files = [*(path for package in ("kombu_delayq", "celery_ext") for path in (ROOT / package).rglob("*.py"))]
    files += [ROOT / name for name in ("pyproject.toml", "Makefile", CI, "README.md", "docs/conf.py")]
    having = [path for path in files if __version__ in path.read_text(encoding="utf-8")]
    assert having == [ROOT / "kombu_delayq/__init__.py"]
    assert PROJECT["dynamic"] == ["version"]


def test_the_changelog_begins_with_this_version() -> None:
    """Sections are versions, newest first, each with its date; the first is this one, which may be unreleased."""
    lines = (ROOT / "docs/changelog.md").read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"## (\S+) \((unreleased|20\d\d-\d\d-\d\d)\)", line) for line in lines if line[:3] == "## "]
    sections = [match.groups() for match in found if match]
    assert len(sections) == len(found)
    versions = [Version(version) for version, _ in sections]
    assert versions == sorted(set(versions), reverse=True)
    assert versions[0] == Version(__version__)
    assert "unreleased" not in [date for _, date in sections[1:]]


def test_a_release_has_no_placeholders_and_a_date() -> None:
    """The check names each placeholder, and a section of the changelog without a date or of another version."""
    check = run_path(str(ROOT / ".ci/release_check.py"))["complaints"]
    wanted = {"Repository", "Documentation", "Changelog"}
    assert PROJECT["urls"].keys() == wanted
    assert PROJECT["authors"]
    filled = {"authors": [{"name": "Ada"}], "urls": dict.fromkeys(wanted, "https://forge.example/it")}
    assert list(check(filled, "# Changelog\n\n## 1.0 (2030-01-01)\n", "1.0")) == []
    missing = list(check(PROJECT, "## 1.0 (unreleased)\n", "1.0"))
    left = [url for url in PROJECT["urls"].values() if "example.invalid" in url]
    assert [any(url in line for line in missing) for url in left] == [True] * len(left)
    assert "the date of 1.0" in missing[-1]
    assert "is not 1.1" in next(iter(check(filled, "## 1.0 (2030-01-01)\n", "1.1")))


def test_what_real_apps_pin_is_admitted() -> None:
    """No bound of ours, nor of an extra that we ask for, keeps out a version that a real app pins.

    ``make release-check`` asks pip the same, with all that the packages need.
    """
    needed = [Requirement(text) for text in PROJECT["dependencies"]]
    for each in list(needed):
        for extra in each.extras:
            found = map(Requirement, requires(each.name) or ())
            needed += [one for one in found if one.marker and one.marker.evaluate({"extra": extra})]
    for app, pins in run_path(str(ROOT / ".ci/release_check.py"))["APPS"].items():
        for pin in map(Requirement, pins):
            [first, *_] = pin.specifier
            refused = [str(one) for one in needed if one.name == pin.name and first.version not in one.specifier]
            assert not refused, (app, str(pin))


@pytest.mark.wide
def test_placeholders_stand_in_one_place() -> None:
    """Nothing but ``pyproject.toml`` and what looks for them there has an address that is none."""
    having = {ROOT / "pyproject.toml", ROOT / ".ci/release_check.py", Path(__file__)}
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    texts = {path: path.read_bytes() for name in files if (path := ROOT / name).is_file()}
    assert {path for path, text in texts.items() if b"example.invalid" in text} <= having


def test_a_page_installs_nothing_by_a_name_that_is_not_published() -> None:
    """By name only extras are added, which all exist, and a path to the checkout leads to it."""
    for page in PAGES:
        wanted = [word for words in commands(page) if words[:2] == ["pip", "install"] for word in words[2:]]
        assert PROJECT["name"] not in wanted, named(page)
        checkouts = [word.partition("[")[0] for word in wanted if word.startswith("..")]
        assert [(page.parent / path).resolve() for path in checkouts] == [ROOT] * len(checkouts), named(page)
        named_there = re.findall(rf"(?:{PROJECT['name']}|\.)\[([\w,-]+)\]", page.read_text(encoding="utf-8"))
        extras = {extra for several in named_there for extra in several.split(",")}
        assert extras <= PROJECT["optional-dependencies"].keys(), named(page)


def test_the_install_page_has_the_extras_for_users() -> None:
    """Each extra that is not for those who work on the project has a row."""
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/how-to/migrate.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == PROJECT["optional-dependencies"].keys() - {
        "test",
        "test-connect",
        "test-all",
        "docs",
        "release",
    }


def test_the_workflow_runs_what_ci_runs() -> None:
    """The forge runs the script that CI runs, in a checkout, and no other step; what runs each week fails nothing."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job, weekly = workflow["jobs"]["run"], workflow["jobs"]["early"]
    assert weekly["continue-on-error"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [CI]
    assert [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step] == ["actions/checkout"]
    assert os.access(ROOT / CI, os.X_OK)
    assert workflow["permissions"] == {"contents": "read"}
