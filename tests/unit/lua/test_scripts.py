"""The Lua files, how they are loaded, and that each operation has its place everywhere."""

import re
import shutil
import subprocess
from functools import cache
from hashlib import sha1
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis import scripts
from kombu_delayq.store.part import StorePart
from tests.support import ROOT
from tests.support.lua.headers import split
from tests.support.lua.names import (
    complaints,
    defined_in,
    included_by,
    included_first,
    included_of_other,
    source_of,
    used_in,
)
from tests.support.lua.scripts import FORMS, INCLUDES, LUA, OPERATIONS

for folder in {path.rpartition("/")[0] for path in scripts.operations().values()} - {"", *LAYOUTS}:
    import_module(f"celery_ext.{folder}.store")
#: The parts of a store, those of features too.
PARTS = StorePart.__subclasses__()


def test_every_operation_has_its_method_and_its_tests() -> None:
    """An operation is called the same in its Lua file, as a method of a part of the store, and in its test file."""
    for operation in OPERATIONS:
        methods = [getattr(part, operation) for part in PARTS if hasattr(part, operation)]
        assert [len(signature(method).parameters) >= 1 for method in methods] == [True], operation
        assert (ROOT / "tests" / "store" / "scripts" / f"test_{operation}.py").is_file()


def is_for(include: str, layout: str) -> bool:
    """Whether scripts of a layout get an include: not that of the other one, nor one that a feature stands in for."""
    return scripts.path_of(Path(include).stem, layout) == include


#: Each Lua file with each layout for which it is read.
READ = [
    *FORMS,
    *((include, layout) for include in INCLUDES for layout in LAYOUTS if is_for(include, layout)),
]


@cache
def definitions(layout: str) -> dict[str, str]:
    """Returns all names that includes define for a layout, each with the path of its include."""
    paths = [path for path, form in READ if form == layout and path in INCLUDES]
    return {name: path for path in paths for name in defined_in(source_of(path))}


def test_a_file_includes_what_it_uses() -> None:
    """What a file uses it defines itself, or includes itself, in each layout; and it includes nothing else."""
    found = {(path, layout): complaints(path, layout, definitions(layout)) for path, layout in READ}
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_name_finds_its_file(layout: str) -> None:
    """In a layout a function or local of an include is defined once."""
    names = [name for path in set(definitions(layout).values()) for name in defined_in(source_of(path))]
    assert sorted(names) == sorted(definitions(layout))
    shared, own = (set(scripts.directory().glob(f"include/{folder}/*")) for folder in ("shared", layout))
    assert not {path.name for path in shared} & {path.name for path in own}


def test_an_include_that_lacks_or_is_left_over_is_found() -> None:
    """Each way in which a file and its includes part is found."""
    of = {"now_ms": "include/shared/clock.lua", "CATCH_UP_MS": "include/shared/rate_limit.lua"}
    assert used_in(
        "local a, b = 1, now_ms()\nlocal function f(c) return a.d .. c, CATCH_UP_MS == 1, 'e' end -- g"
    ) >= set(of)
    assert not used_in("local t, now_ms = { CATCH_UP_MS = 1 }, 2\nt.CATCH_UP_MS = now_ms") & set(of)
    assert complaints("watch_heads", "hash", of) == []
    assert complaints("watch_heads", "hash", {"now_ms": of["CATCH_UP_MS"]}) == [
        "now_ms is in include/shared/rate_limit.lua, which is not included",
        "include/shared/clock.lua is included and not used",
    ]


def test_no_include_is_left_over() -> None:
    """Every include belongs to an operation, or to another include, and every function of it is used."""
    by = (included_by, included_first, included_of_other)
    used = {include for path, form in READ for of in by for include in of(path, form)}
    of_loader = {"include/shared/wrong_type.lua", *(f"include/{layout}/types.lua" for layout in LAYOUTS)}
    assert {include for include in INCLUDES if any(is_for(include, layout) for layout in LAYOUTS)} - used <= of_loader
    calls = "".join(
        re.sub(r"^local function \w+|^-- @include .*", "", path.read_text(), flags=re.MULTILINE) for path in LUA
    )
    defined = [name for include in INCLUDES for name in defined_in(source_of(include))]
    assert [name for name in defined if not re.search(rf"\b{name}\b", calls)] == []


def test_lua_files_are_short() -> None:
    """A Lua file has at most 80 lines, a line at most 120 characters."""
    for path in LUA:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 80, path
        assert [line for line in lines if len(line) > 120] == [], path


def test_an_expanded_script_has_its_includes_and_no_comments() -> None:
    """Redis gets the code of an operation after what that uses of its includes, without what is written for people."""
    for operation, layout in FORMS:
        text = scripts.load(operation, layout).text
        assert not re.search(r"^ *--", text, re.MULTILINE), operation
        _, body = split(source_of(operation))
        own = re.sub(r"^ *--.*\n", "", body + "\n", flags=re.MULTILINE).lstrip("\n")
        assert text.endswith(own), (operation, layout)


def test_a_script_gets_only_what_it_uses() -> None:
    """Of an include a script has the functions that it calls, and those that these call, and no others."""
    text = scripts.load("heads").text
    assert "local function now_ms()" in text
    assert "local function at(" not in text


def test_what_runs_first_stands_before_what_may_not_be_needed() -> None:
    """``@first`` names a function that is called before the others are defined, and each is defined once."""
    text = scripts.load("offer").text
    first, called, rest = text.partition("local done = offer_one()\nif done then\n  return done\nend\n")
    assert called
    assert "local function offer_one()" in first
    assert "local function needs_mark(" in first
    assert "local function put(" in rest
    defined = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    assert len(defined) == len({*defined})
    assert "offer_one" not in scripts.load("offer", "redisson").text


def test_functions_of_the_other_form_stand_apart() -> None:
    """What ``@other`` names is there for the other layout, with all that it includes, and beside the script's own."""
    for layout, other in (LAYOUTS, LAYOUTS[::-1]):
        apart, end, own = scripts.load("convert", layout).text.partition("end)()\n")
        assert end
        assert "@other" not in own
        for form, text in ((layout, own), (other, apart)):
            assert f"notes = '{'string' if form == 'hash' else 'hash'}'" in text
        named = re.findall(r"^  (\w+) = \1,$", apart, re.MULTILINE)
        assert set(named) == set(re.findall(r"\bother\.(\w+)", own))


def test_the_sha_is_that_of_the_text() -> None:
    """A script's SHA is the one that Redis computes."""
    script = scripts.load("offer", "hash")
    assert script.sha == sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert scripts.load("offer", "hash") is script


def test_an_unknown_operation_or_layout_is_an_error() -> None:
    """There is no script of a name that no file has."""
    with pytest.raises(FileNotFoundError):
        scripts.load("no_such_operation")
    with pytest.raises(FileNotFoundError):
        scripts.load("offer", "no_such_layout")


@pytest.mark.wide
@pytest.mark.skipif(not shutil.which("luacheck"), reason="luacheck is not installed")
def test_luacheck_finds_nothing(tmp_path: Path) -> None:
    """The scripts, as Redis gets them, are clean to luacheck."""
    files = []
    for operation, layout in FORMS:
        files.append(tmp_path / f"{operation}_{layout}.lua")
        files[-1].write_text(scripts.load(operation, layout).text, encoding="utf-8")
    done = subprocess.run(
        ["luacheck", "--no-color", "--config", str(ROOT / ".luacheckrc"), *map(str, files)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
