"""Finds the Lua files, expands their headers and includes, and keeps the result.

An operation has a name that no other one has. Its file is in ``lua/``, or in a folder of the feature that it serves.

The header of an operation names its keys. The operation has each under its name:

``-- KEYS[2] guard  SET  ids that the job has sent``
    One key, and its type.
``-- KEYS[3-6] keys  of the queue's delayed messages``
    The four keys of a queue's delayed messages in the layout that the script is for, which are ``keys.due``,
    ``keys.bodies``, ``keys.notes`` and ``keys.ids``. ``lua/include/<layout>/types.lua`` describes them. Four of another
    name are those of the other layout.
``-- KEYS[7...] ready  LIST  the queue's lists``
    All others, of one type.

An operation begins with a check of the types of all its keys, see ``wrong_type.lua``, unless it has ``-- @unchecked``.

A Lua file names in its header the includes whose functions or constants it uses itself:

``-- @include clock find``
    An include is a file of functions. It stands in ``lua/include/shared/``, or, where the two layouts need
    different functions under the same names, in ``lua/include/hash/`` and ``lua/include/redisson/``: a script gets
    those of the layout that it is loaded for.
``-- @other page leave``
    The includes of the other layout, for a script that works on both layouts at once. It calls their functions as
    ``other.page`` and so on. They stand in a scope of their own, apart from the script's own functions of the same
    names. Only an operation may name such includes.

``-- @first hash offer_one``
    In this layout, the include of this name has a function of the same name, which runs first. If it returns a reply,
    that is the reply of the script, whose other functions are not even defined then.

Redis gets only those parts of the includes that a script uses, and no lines of comment.
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
_FIRST = re.compile(r"^-- @first (\w+) (\w+)\n", re.MULTILINE)
_UNCHECKED = "\n-- @unchecked\n"
_KEY = re.compile(r"^-- KEYS\[(\d*)(\.\.\.|-\d+)?\] +(\w+)(?: +([A-Z]+))?", re.MULTILINE)
#: How scripts call the four keys of a queue's delayed messages, in the order of ``Keys.stored``.
ROLES = ("due", "bodies", "notes", "ids")
#: Includes that the code uses which the loader writes.
_OF_CHECK = ("types", "wrong_type")
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
def operations() -> dict[str, str]:
    """Returns the paths of all operations, under ``lua/``, by their names."""
    paths = (path.relative_to(directory()) for path in sorted(directory().rglob("*.lua")))
    return {path.stem: path.as_posix() for path in paths if path.parts[0] != "include"}


@cache
def load(operation: str, layout: str = "hash") -> Script:
    """Loads the script of one operation.

    Args:
        operation: Its name.
        layout: The layout that the script is for.

    Raises:
        FileNotFoundError: There is no such operation or include.
    """
    source = _source(operations().get(operation, f"{operation}.lua"))
    body = _of_keys(source) + _code(source)
    first = _first(source, layout)
    definitions = _definitions([*included(source), *_OF_CHECK], layout, set())
    rest = [definition for definition in definitions if definition not in first]
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


def included_first(source: str, layout: str) -> str | None:
    """Returns the name of the include that a Lua file runs first in a layout, or None."""
    return dict(_FIRST.findall(source)).get(layout)


def path_of(include: str, layout: str) -> str:
    """Returns the path, under ``lua/``, of an include for a layout."""
    own = f"include/{layout}/{include}.lua"
    return own if (directory() / own).is_file() else f"include/shared/{include}.lua"


def _of_keys(source: str) -> str:
    """Returns the code that binds the keys of an operation to their names, and checks their types."""
    bound, expected, others = "", "", ""
    for first, more, name, kind in _KEY.findall(source):
        if more == "...":
            others = f"  for i = {first or 1}, #KEYS do\n    expected[KEYS[i]] = '{kind.lower()}'\n  end\n"
        elif more:
            fields = ", ".join(f"{role} = KEYS[{at}]" for at, role in enumerate(ROLES, int(first)))
            bound += f"local {name} = {{ {fields} }}\n"
            types = "TYPES" if name == "keys" else "other.TYPES"
            expected += "".join(f"    [{name}.{role}] = {types}.{role},\n" for role in ROLES)
        else:
            bound += f"local {name} = KEYS[{first}]\n"
            expected += f"    [{name}] = '{kind.lower()}',\n"
    if _UNCHECKED in source:
        return bound
    check = "  local wrong = wrong_type(expected)\n  if wrong then\n    return wrong\n  end\n"
    return f"{bound}do\n  local expected = {{\n{expected}  }}\n{others}{check}end\n"


def _definitions(includes: Iterable[str], layout: str, seen: set[str]) -> list[str]:
    """Returns the functions and locals of includes. A function comes after the ones that it may use."""
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
    name = included_first(source, layout)
    if name is None:
        return []
    run = f"local done = {name}()\nif done then\n  return done\nend\n"
    return [*_needed(_definitions([name], layout, set()), run), run]


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
    definitions = _definitions([*includes, *_OF_CHECK], other, set())
    # This code stands before the script's own definitions, so it does not see them.
    return f"local other = (function()\n{_with_needed(definitions, table)}end)()\n"


def _code(source: str) -> str:
    """Returns the text of a file without comments: Redis would keep them, and a first EVAL would carry them."""
    return _COMMENT.sub("", source).lstrip("\n")


def _source(path: str) -> str:
    return (directory() / path).read_text(encoding="utf-8")
