"""Finds the Lua files, expands their includes, and keeps the result.

A Lua file names in its header the includes whose functions or constants it uses itself:

``-- @include clock find``
    An include is a file of functions. It stands in ``lua/include/shared/``, or, where the two layouts need
    different functions under the same names, in ``lua/include/hash/`` and ``lua/include/redisson/``: a script gets
    those of the layout that it is loaded for.
``-- @other page leave``
    The includes of the other layout, for a script that works on both layouts at once. It calls their functions as
    ``other.page`` and so on. They stand in a scope of their own, apart from the script's own functions of the same
    names. Only an operation may name such includes.

``-- @first offer_one``
    The include of this name has a function of the same name, which runs first. If it returns a reply, that is the reply
    of the script, whose other functions are not even defined then. A layout that has no such include goes without.

Redis gets only those parts of the includes that a script uses, and no lines of comment.

In a header ``HASH|LIST`` is the type of a key in the layouts hash and redisson. ``lua/include/<layout>/types.lua``
describes the keys of a queue in that layout.
"""

import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from kombu_delayq.options import LAYOUTS

_PACKAGED = Path(__file__).parents[1] / "lua"
_CHECKOUT = Path(__file__).parents[2] / "lua"
_INCLUDE = re.compile(r"^-- @include ([\w ]+)\n", re.MULTILINE)
_OTHER = re.compile(r"^-- @other ([\w ]+)\n", re.MULTILINE)
_FIRST = re.compile(r"^-- @first (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
_DEFINITION = re.compile(r"^(?=local )", re.MULTILINE)
_DEFINED = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)")
#: A name that is no field and no method. A name behind the operator ``..`` is neither.
_USED = re.compile(r"(?:(?<![.:\w])|(?<=\.\.))[A-Za-z_]\w*")

#: Texts of the scripts that were loaded, by their SHA-1.
_texts: dict[str, str] = {}


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
def load(operation: str, layout: str = "hash") -> Script:
    """Loads the script of one operation.

    Args:
        operation: Name of a file in ``lua/``, without its ending.
        layout: The layout that the script is for.

    Raises:
        FileNotFoundError: There is no such operation or include.
    """
    source = _source(f"{operation}.lua")
    body = _code(source)
    first = _first(source, layout)
    rest = [definition for definition in _definitions(included(source), layout, set()) if definition not in first]
    text = _of_other(source, body, layout) + "".join(first) + _with_needed(rest, body)
    made = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    _texts[made.sha] = text
    return made


def text_of(sha: str) -> str | None:
    """Returns the text of a script that this process has loaded, by its SHA-1; None for any other."""
    return _texts.get(sha)


def included(source: str) -> list[str]:
    """Returns the names of the includes that a Lua file asks for."""
    return " ".join(_INCLUDE.findall(source)).split()


def included_of_other(source: str) -> list[str]:
    """Returns the names of the includes that a Lua file asks for in the other layout."""
    return " ".join(_OTHER.findall(source)).split()


def included_first(source: str, layout: str) -> list[str]:
    """Returns the name of the include that a Lua file runs first in a layout, or nothing."""
    return [name for name in _FIRST.findall(source) if (directory() / path_of(name, layout)).is_file()]


def path_of(include: str, layout: str) -> str:
    """Returns the path, under ``lua/``, of an include for a layout."""
    own = f"include/{layout}/{include}.lua"
    return own if (directory() / own).is_file() else f"include/shared/{include}.lua"


def _definitions(includes: Iterable[str], layout: str, seen: set[str]) -> list[str]:
    """Returns the functions and locals that a file includes. A function comes after the ones that it may use."""
    found: list[str] = []
    for path in (path_of(include, layout) for include in includes):
        if path not in seen:
            seen.add(path)
            source = _source(path)
            found += _definitions(included(source), layout, seen)
            found += [definition for definition in _DEFINITION.split(_code(source)) if definition]
    return found


def _first(source: str, layout: str) -> list[str]:
    """Returns the definitions of what an operation runs first, and the code that runs it."""
    found: list[str] = []
    for name in included_first(source, layout):
        run = f"local done = {name}()\nif done then\n  return done\nend\n"
        found += [*_needed(_definitions([name], layout, set()), run), run]
    return found


def _with_needed(definitions: list[str], body: str) -> str:
    """Returns a body behind the definitions that it uses."""
    return "".join(_needed(definitions, body)) + body


def _needed(definitions: list[str], body: str) -> list[str]:
    """Returns the definitions that a body uses, by itself or through other definitions."""
    needed, used = list[str](), set(_USED.findall(body))
    for definition in reversed(definitions):
        names = ", ".join(_DEFINED.findall(definition)).split(", ")
        if not used.isdisjoint(names):
            needed.append(definition)
            used.update(_USED.findall(definition))
    return needed[::-1]


def _of_other(source: str, body: str, layout: str) -> str:
    """Returns Lua code for the table ``other`` with the other layout's functions that an operation uses, or nothing."""
    includes = included_of_other(source)
    if not includes:
        return ""
    [other] = {*LAYOUTS} - {layout}
    used = dict.fromkeys(re.findall(r"\bother\.(\w+)", body))
    table = "return {\n" + "".join(f"  {name} = {name},\n" for name in used) + "}\n"
    # This code stands before the script's own definitions, so it does not see them.
    return f"local other = (function()\n{_with_needed(_definitions(includes, other, set()), table)}end)()\n"


def _code(source: str) -> str:
    """Returns the text of a file without comments: Redis would keep them, and a first EVAL would carry them."""
    return _COMMENT.sub("", source).lstrip("\n")


def _source(path: str) -> str:
    return (directory() / path).read_text(encoding="utf-8")
