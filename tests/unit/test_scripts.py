"""The Lua files, how they are loaded, and that each operation has its place everywhere."""

import re
import shutil
import subprocess
from hashlib import sha1
from inspect import signature
from pathlib import Path

import pytest

from kombu_delayq import scripts
from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore
from tests.unit.lua_headers import split

ROOT = Path(__file__).parent.parent.parent
LUA = sorted(scripts.directory().rglob("*.lua"))
OPERATIONS = [path.stem for path in sorted(scripts.directory().glob("*.lua"))]
INCLUDES = [path.relative_to(scripts.directory()).as_posix() for path in LUA if "include" in path.parts]

#: Operations that are for one form of backup only.
ONLY = {"index": ("list",), "relist": ("list",), "repair_backup": ("hash",), "repair_list": ("list",)}
#: Each operation with each form of backup that it is for.
FORMS = [(operation, backup) for operation in OPERATIONS for backup in ONLY.get(operation, BACKUPS)]


def source_of(path: str) -> str:
    return (scripts.directory() / path).read_text(encoding="utf-8")


def included_by(path: str, backup: str) -> list[str]:
    """Returns the paths of the includes that a file names, for a script of one form of backup."""
    source, [other] = source_of(path), {*BACKUPS} - {backup}
    of_other = [scripts.path_of(include, other) for include in scripts.included_of_other(source)]
    return [*(scripts.path_of(include, backup) for include in scripts.included(source)), *of_other]


def functions_of(include: str) -> list[str]:
    return re.findall(r"^local function (\w+)", source_of(include), re.MULTILINE)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_its_method_and_its_tests(operation: str) -> None:
    """An operation is called the same in its Lua file, as a method of DelayStore, and in its test file."""
    assert callable(getattr(DelayStore, operation))
    assert len(signature(getattr(DelayStore, operation)).parameters) >= 2
    assert (ROOT / "tests" / "lua" / f"test_{operation}.py").is_file()


@pytest.mark.parametrize(("operation", "backup"), FORMS)
def test_includes_exist_and_are_used(operation: str, backup: str) -> None:
    """Every include that an operation names exists, and its body calls a function of it."""
    _, body = split(source_of(f"{operation}.lua"))
    for include in included_by(f"{operation}.lua", backup):
        assert include in INCLUDES
        assert any(f"{function}(" in body for function in functions_of(include)), f"{include} is not used"


@pytest.mark.parametrize("include", INCLUDES)
def test_no_include_is_left_over(include: str) -> None:
    """Every include belongs to an operation, or to another include."""
    others = [*(f"{operation}.lua" for operation in OPERATIONS), *INCLUDES]
    assert any(include in included_by(other, backup) for other in others for backup in BACKUPS)


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.name)
def test_lua_files_are_short(path: Path) -> None:
    """A Lua file has at most 80 lines, a line at most 120 characters."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(("operation", "backup"), FORMS)
def test_an_expanded_script_has_its_includes_and_no_comments(operation: str, backup: str) -> None:
    """Redis gets the code of an operation after what that uses of its includes, without what is written for people."""
    text = scripts.load(operation, backup).text
    assert not re.search(r"^ *--", text, re.MULTILINE)
    _, body = split(source_of(f"{operation}.lua"))
    assert text.endswith(re.sub(r"^ *--.*\n", "", body + "\n", flags=re.MULTILINE).lstrip("\n"))


def test_a_script_gets_only_what_it_uses() -> None:
    """Of an include a script has the functions that it calls, and those that these call, and no others."""
    text = scripts.load("heads").text
    assert "local function now_ms()" in text
    assert "local function at(" not in text


def test_functions_of_the_other_form_stand_apart() -> None:
    """What ``@other`` names is there for the other form, with all that it includes, and beside the script's own."""
    for backup, other in (BACKUPS, BACKUPS[::-1]):
        apart, end, own = scripts.load("convert", backup).text.partition("end)()\n")
        assert end
        assert "@other" not in own
        for form, text in ((backup, own), (other, apart)):
            assert f"order = '{'string' if form == 'hash' else 'hash'}'" in text
        named = re.findall(r"^  (\w+) = \1,$", apart, re.MULTILINE)
        assert set(named) == set(re.findall(r"\bother\.(\w+)\(", own))


@pytest.mark.parametrize(("operation", "backup"), FORMS)
def test_the_sha_is_that_of_the_text(operation: str, backup: str) -> None:
    """A script's SHA is the one that Redis computes."""
    script = scripts.load(operation, backup)
    assert script.sha == sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert scripts.load(operation, backup) is script


def test_an_unknown_operation_or_backup_is_an_error() -> None:
    """There is no script of a name that no file has."""
    with pytest.raises(FileNotFoundError):
        scripts.load("no_such_operation")
    with pytest.raises(FileNotFoundError):
        scripts.load("offer", "no_such_backup")


@pytest.mark.skipif(not shutil.which("luacheck"), reason="luacheck is not installed")
def test_luacheck_finds_nothing(tmp_path: Path) -> None:
    """The scripts, as Redis gets them, are clean to luacheck."""
    files = []
    for operation, backup in FORMS:
        files.append(tmp_path / f"{operation}_{backup}.lua")
        files[-1].write_text(scripts.load(operation, backup).text, encoding="utf-8")
    done = subprocess.run(
        ["luacheck", "--no-color", "--config", str(ROOT / ".luacheckrc"), *map(str, files), "--ignore", "211"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
