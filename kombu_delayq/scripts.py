"""Finds the Lua files, expands their includes, and keeps the result."""

import re
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

_PACKAGED = Path(__file__).parent / "lua"
_CHECKOUT = Path(__file__).parent.parent / "lua"
_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
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
    text = _expanded(f"{operation}.lua", backup, set())
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _expanded(name: str, backup: str, seen: set[str]) -> str:
    """Returns a file without its comments, after what it includes and ``seen`` does not have yet."""
    source = (directory() / name).read_text(encoding="utf-8")
    text = ""
    for each in _INCLUDE.findall(source):
        included = f"include/{each}_{backup}.lua"
        if not (directory() / included).is_file():
            included = f"include/{each}.lua"
        if included not in seen:
            seen.add(included)
            text += _expanded(included, backup, seen)
    # Redis keeps a script as it was sent, and a queue's first message takes it along: what only people read stays
    # behind.
    return text + _COMMENT.sub("", source).lstrip("\n")
