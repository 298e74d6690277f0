"""Finds the Lua files, expands their includes, and keeps the result.

A script may name what it needs in its header:

``-- @include find``
    The functions of ``lua/include/find_<backup>.lua``, where there is one for the form of backup that the script is
    loaded for, else of ``lua/include/find.lua``. An include names its own in the same way.
``-- @other page leave``
    The functions of these includes for the other form of backup, as ``other.page`` and so on, for a script that works
    on both forms at once. They stand in a scope of their own, so that no name is that of a function of the script's
    own form. Only an operation, no include, names such.
"""

import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from kombu_delayq.options import BACKUPS

_PACKAGED = Path(__file__).parent / "lua"
_CHECKOUT = Path(__file__).parent.parent / "lua"
_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
_OTHER = re.compile(r"^-- @other ([\w ]+)\n", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


class Script(NamedTuple):
    """A Lua script as Redis runs it.

    Attributes:
        text: Source with all includes in place.
        sha: SHA-1 of the text, by which Redis knows a script that it has cached.
    """

    text: str
    sha: str


def directory() -> Path:
    """Returns where the Lua files are: inside an installed package, else in the checkout."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


@cache
def load(operation: str, backup: str = "hash") -> Script:
    """Loads the script of one operation.

    Args:
        operation: Name of a file in ``lua/``, without its ending.
        backup: Which of the forms of a backup the script is for: ``@include find`` stands for
            ``lua/include/find_<backup>.lua`` where there is one.

    Raises:
        FileNotFoundError: There is no such operation or include.
    """
    text = _of_other(f"{operation}.lua", backup) + _expanded(f"{operation}.lua", backup, set())
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _expanded(name: str, backup: str, seen: set[str]) -> str:
    """Returns a file without its comments, after what it includes and ``seen`` does not have yet."""
    source = _source(name)
    text = _included(_INCLUDE.findall(source), backup, seen)
    # Redis keeps a script as it was sent, and a queue's first message takes it along: what only people read stays
    # behind.
    return text + _COMMENT.sub("", source).lstrip("\n")


def _included(includes: Iterable[str], backup: str, seen: set[str]) -> str:
    text = ""
    for each in includes:
        name = _file_of(each, backup)
        if name not in seen:
            seen.add(name)
            text += _expanded(name, backup, seen)
    return text


def _of_other(name: str, backup: str) -> str:
    """Returns the table of functions of the other form of backup that a file asks for, if it does."""
    includes = " ".join(_OTHER.findall(_source(name))).split()
    if not includes:
        return ""
    [other] = {*BACKUPS} - {backup}
    functions = [each for include in includes for each in _FUNCTION.findall(_source(_file_of(include, other)))]
    table = "".join(f"  {each} = {each},\n" for each in functions)
    # Before the script's own includes, of which it sees nothing.
    return f"local other = (function()\n{_included(includes, other, set())}return {{\n{table}}}\nend)()\n"


def _file_of(include: str, backup: str) -> str:
    name = f"include/{include}_{backup}.lua"
    return name if (directory() / name).is_file() else f"include/{include}.lua"


def _source(name: str) -> str:
    return (directory() / name).read_text(encoding="utf-8")
