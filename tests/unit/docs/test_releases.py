"""What a release needs: one version, a changelog that has it, three names, pinned tools, and workflows."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from kombu_delayq import __version__
from tests.support import ROOT
from tests.support.pages import PAGES, commands, named

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CI = ".ci/run"
WORKFLOWS = {
    path.stem: yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - ours; else `on` is True
    for path in (ROOT / ".github/workflows").iterdir()
}
NAMES = {"author": "Ada", "contact": "ada@forge.example", "repository": "https://forge.example/it"}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that checks a release."""
    monkeypatch.syspath_prepend(ROOT / ".ci")
    yield import_module("release_check")
    for name in ("release_check", "names"):
        del sys.modules[name]


def test_the_version_stands_in_one_place() -> None:
    """Only the package has the version; what is built or said takes it from there."""
    files = [*(path for package in ("kombu_delayq", "celery_ext") for path in (ROOT / package).rglob("*.py"))]
    files += [ROOT / name for name in ("pyproject.toml", "Makefile", CI, "README.md", "docs/conf.py")]
    having = [path for path in files if __version__ in path.read_text(encoding="utf-8")]
    assert having == [ROOT / "kombu_delayq/__init__.py"]
    assert "version" in PROJECT["dynamic"]


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


def test_a_release_has_no_placeholders_and_a_date(check: Any) -> None:
    """The check names placeholders, pages that say that nothing is published, and a changelog without a date."""
    good = dict.fromkeys(check.UNPUBLISHED, "") | {"docs/changelog.md": "# Changelog\n\n## 1.0 (2030-01-01)\n"}
    assert list(check.complaints(NAMES, good, "1.0")) == []
    assert "is not 1.1" in next(iter(check.complaints(NAMES, good, "1.1")))
    bad = {page: f"{text} " for page, text in check.UNPUBLISHED.items()}
    bad["docs/changelog.md"] += "\n## 1.0 (unreleased)\n"
    placeholders = {"author": "fill in", "contact": "a@example.invalid", "repository": "https://example.invalid/it"}
    missing = list(check.complaints(placeholders, bad, "1.0"))
    for each, line in zip([*placeholders, *bad, "the date of 1.0"], missing, strict=True):
        assert each in line
    assert PYPROJECT["tool"]["names"].keys() == NAMES.keys()


def test_each_page_that_a_release_changes_says_how_it_is(check: Any) -> None:
    """As long as the names are placeholders, nothing is published, and each page that the check looks at says so."""
    unfilled = any(check.PLACEHOLDER.search(name) for name in PYPROJECT["tool"]["names"].values())
    said = {page: text in (ROOT / page).read_text(encoding="utf-8") for page, text in check.UNPUBLISHED.items()}
    assert set(said.values()) == {unfilled}, said


def test_the_notes_of_a_release_are_its_section(check: Any) -> None:
    """They are what the changelog has of the version, and their links lead into the repository, as it is at the tag."""
    changelog = (
        "# Changelog\n\n## 1.1 (2031-01-01)\n\nNew.\n\n### It\n\n- [b](how-to/b.md#c)\n\n## 1.0 (2030-01-01)\n\nOld.\n"
    )
    assert check.notes(changelog, "1.1") == "New.\n\n### It\n\n- [b](how-to/b.md#c)\n"
    assert check.notes(changelog, "1.0") == "Old.\n"
    with pytest.raises(ValueError, match=r"no section 1\.2"):
        check.notes(changelog, "1.2")
    text = "[a](how-to/b.md#c) [b](../LICENSE) ![c](images/d.png) [e](#f) [g](https://h.example/)"
    assert check.linked(text, "docs/", "https://forge.example/it", "v1.1") == (
        "[a](https://forge.example/it/blob/v1.1/docs/how-to/b.md#c) [b](https://forge.example/it/blob/v1.1/LICENSE) "
        "![c](https://forge.example/it/raw/v1.1/docs/images/d.png) [e](#f) [g](https://h.example/)"
    )
    assert check.notes((ROOT / "docs/changelog.md").read_text(encoding="utf-8"), __version__)


def test_a_tag_of_another_version_is_no_release(check: Any) -> None:
    """The tag has to be that of the version; one that is there already is named before another is made."""
    found = [*check._complaints_of_git("v0.9", "v1.0"), *check._complaints_of_git("v1.0", "v1.0")]
    assert [line for line in found if "tag" in line] == [
        "the tag v1.0 is not that of __version__ in kombu_delayq/__init__.py, which is v0.9"
    ]


def test_what_builds_a_release_and_the_image_is_pinned() -> None:
    """Each package that they ask for has one version in the constraints, within our bounds."""
    lines = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = [*PYPROJECT["build-system"]["requires"], *PROJECT["dependencies"]]
    for extra in ("release", "serve", "journal"):
        wanted += PROJECT["optional-dependencies"][extra]
    for one in map(Requirement, wanted):
        assert one.specifier.contains(pinned[one.name]), str(one)


def test_what_real_apps_pin_is_admitted(check: Any) -> None:
    """No bound of ours, nor of an extra that we ask for, keeps out a version that a real app pins.

    ``make release-check`` asks pip the same, with all that the packages need.
    """
    needed = [Requirement(text) for text in PROJECT["dependencies"]]
    for each in list(needed):
        for extra in each.extras:
            found = map(Requirement, requires(each.name) or ())
            needed += [one for one in found if one.marker and one.marker.evaluate({"extra": extra})]
    for app, pins in check.APPS.items():
        for pin in map(Requirement, pins):
            [first, *_] = pin.specifier
            refused = [str(one) for one in needed if one.name == pin.name and first.version not in one.specifier]
            assert not refused, (app, str(pin))


@pytest.mark.wide
def test_placeholders_stand_in_one_place() -> None:
    """Nothing but the table of names, and what looks for them, has a text that is to be filled in."""
    placeholder = rb"example\.invalid|\bTODO\b|FIXME|CHANGE-?ME|\bOWNER/|your-(org|name|user)|<(owner|user|org)>"
    having = {"pyproject.toml", ".ci/names.py", str(Path(__file__).relative_to(ROOT))}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {name: ROOT / name for name in listed.split("\n") if name not in having and (ROOT / name).is_file()}
    assert not [name for name, path in files.items() if re.search(placeholder, path.read_bytes(), re.IGNORECASE)]


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


def steps_of(workflow: str) -> list[dict[str, Any]]:
    """Returns the steps of all jobs of a workflow."""
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job.get("steps", [])]


def test_the_workflow_runs_what_ci_runs() -> None:
    """The forge runs the script that CI runs, in a checkout, and makes the image; what comes next fails nothing."""
    found = [step["run"] for step in steps_of("ci") if "run" in step]
    assert found[:2] == [CI, f"{CI} test"]
    assert [run.split()[0] for run in found[2:]] == ["docker"] * 2
    assert {step["uses"].partition("@")[0] for step in steps_of("ci") if "uses" in step} == {"actions/checkout"}
    assert [step["run"] for step in steps_of("nightly") if CI in step.get("run", "")] == [
        f"{CI} nightly",
        f"{CI} early",
    ]
    assert WORKFLOWS["nightly"]["jobs"]["early"]["continue-on-error"] == "true"
    assert os.access(ROOT / CI, os.X_OK)
    tested = {"3.11", *WORKFLOWS["ci"]["jobs"]["python"]["strategy"]["matrix"]["python"]}
    assert tested == {f"3.{minor}" for minor in range(11, 15)}


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_takes_no_more_than_it_needs(workflow: str) -> None:
    """Actions are pinned by commit, a job has rights and an end of its own, and a checkout leaves no token behind."""
    text = (ROOT / f".github/workflows/{workflow}.yml").read_text(encoding="utf-8")
    used = [line.split("uses: ")[1] for line in text.splitlines() if "uses: " in line]
    pinned = re.compile(r"\./\.github/workflows/\w+\.yml|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert not [each for each in used if not pinned.fullmatch(each)]
    assert WORKFLOWS[workflow]["permissions"] in ({}, "")
    for name, job in WORKFLOWS[workflow]["jobs"].items():
        assert "permissions" in job, name
        assert "timeout-minutes" in job or "uses" in job, name
        assert {"main", "write-all"}.isdisjoint(job["permissions"]), name
    for step in steps_of(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"
        assert "${{" not in step.get("run", ""), "a text of others goes through the environment"


def test_a_release_is_built_once_and_published_last() -> None:
    """Tests and build come first, then the test index, and PyPI last, with an environment that can ask a person."""
    jobs = WORKFLOWS["release"]["jobs"]
    assert WORKFLOWS["release"]["on"] == {"push": {"tags": ["v*"]}}
    needed = {"announce": "publish", "image": "publish", "publish": "try", "try": "attest", "attest": ["ci", "build"]}
    assert {name: job["needs"] for name, job in jobs.items() if "needs" in job} == needed
    checks = [step["run"] for step in jobs["build"]["steps"] if "release_check" in step.get("run", "")]
    assert [check.split()[2:4] for check in checks] == [["--tag", '"$GITHUB_REF_NAME"']]
    publishers = {
        name: [step for step in job.get("steps", []) if "gh-action-pypi-publish" in step.get("uses", "")]
        for name, job in jobs.items()
    }
    assert {name for name, steps in publishers.items() if steps} == {"try", "publish"}
    assert publishers["try"][0]["with"]["repository-url"] == "https://test.pypi.org/legacy/"
    assert [jobs[name]["environment"] for name in ("try", "publish")] == ["testpypi", "pypi"]
    assert {name for name, job in jobs.items() if job["permissions"].get("id-token")} == {
        "attest",
        "try",
        "publish",
        "image",
    }


def test_who_reports_a_fault_is_asked_for_what_is_needed() -> None:
    """The form wants the doctor's findings, versions and options; a warning stops the build of the documentation."""
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text(encoding="utf-8"))
    asked = {each["id"]: each["attributes"]["description"] for each in form["body"] if "id" in each}
    assert asked.keys() == {"what", "doctor", "versions", "options"}
    assert "delayq doctor --json" in asked["doctor"]
    built = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert built["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    for install in built["python"]["install"]:
        assert set(install["extra_requirements"]) <= PROJECT["optional-dependencies"].keys()
