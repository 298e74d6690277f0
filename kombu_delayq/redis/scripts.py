"""Finds the Lua files, expands their headers and includes, and keeps the result.

An operation has a name that no other one has. Its file is in ``lua/``, or there in a folder of the feature or layout
that it serves.

The header of an operation names its keys and its arguments, in their order. The operation has each under its name:

``-- KEYS guard, staged  HASH  of the job``
    Keys of one type each, one after the other.
``-- KEYS keys  of the queue's delayed messages``
    The four keys of a queue's delayed messages in the layout that the script is for, which are ``keys.due``,
    ``keys.bodies``, ``keys.notes`` and ``keys.ids``. ``lua/include/<layout>/types.lua`` describes them. Four of another
    name are those of the other layout.
``-- KEYS ready...  LIST  the queue's lists``
    All others, of one type, as a list.
``-- ARGV queue  its name``
    A text. ``NUMBER`` behind the name makes it a number, or nil where the text is empty; ``FLAG`` a boolean, true for
    ``1``.
``-- ARGV list_of  PRIORITIES  the queue's lists``
    Ten numbers: for each priority from 0 to 9 the place of its list in ``ready``. It becomes a function from a priority
    to the key of its list.
``-- ARGV ids...  of the tasks``
    All others, as a list of texts.
``-- ARGV rows...  {id, due}  one a message``
    All others, as a list of tables with these fields.

An operation begins with a check of the types of all its keys, see ``wrong_type.lua``, unless it has ``-- @unchecked``.

A Lua file names in its header the includes whose functions or constants it uses itself:

``-- @include clock find``
    An include is a file of functions. It stands in ``lua/include/shared/``, or, where the two layouts need
    different functions under the same names, in ``lua/include/hash/`` and ``lua/include/redisson/``: a script gets
    those of the layout that it is loaded for. An include of a feature, in ``lua/<feature>/include/``, stands in for the
    shared one of its name, which is there for a fleet without the feature.
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
_KINDS = "ZSET|HASH|STRING|SET|LIST|NUMBER|FLAG|PRIORITIES"
_PARAMETER = re.compile(
    rf"^-- (KEYS|ARGV) (\w+(?:, \w+)*)(\.\.\.)?(?:  +(?:({_KINDS})\b|\{{([\w, ]+)\}}))?", re.MULTILINE
)
#: How an argument of a kind gets its value.
_AS = {"": "ARGV[{}]", "NUMBER": "tonumber(ARGV[{}])", "FLAG": "ARGV[{}] == '1'"}
#: How scripts call the four keys of a queue's delayed messages, in the order of ``Keys.stored``.
ROLES = ("due", "bodies", "notes", "ids")
#: Includes that the code uses which the loader writes.
_OF_LOADER = ("types", "wrong_type")
#: How a script begins that leaves out the last of KEYS.
GUARDED = "KEYS[#KEYS] = nil\n"
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
_DEFINITION = re.compile(r"^(?=local )", re.MULTILINE)
_DEFINED = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)")
#: A name that is no field and no method. A name behind the operator ``..`` is neither.
_USED = re.compile(r"(?:(?<![.:\w])|(?<=\.\.))[A-Za-z_]\w*")

#: Texts of the scripts that were loaded, by their SHA-1.
_texts: dict[str, str] = {}


class Parameter(NamedTuple):
    """What a header says of one of KEYS or ARGV, or of all others behind it.

    Attributes:
        name: Its name in the script.
        at: Its place, from 1.
        kind: Type of the key, or ``NUMBER``, ``FLAG`` or ``PRIORITIES``; empty for the four keys of a queue, and for a
            text.
        is_rest: Whether it stands for all others.
        fields: Names of the fields of a row.
    """

    name: str
    at: int
    kind: str
    is_rest: bool
    fields: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many of KEYS or ARGV it stands for, or one of its rows."""
        return len(self.fields) or (10 if self.kind == "PRIORITIES" else 1)


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
    return {path.stem: path.as_posix() for path in paths if "include" not in path.parts}


@cache
def load(operation: str, layout: str = "hash", *, guarded: bool = False) -> Script:
    """Loads the script of one operation.

    Args:
        operation: Its name.
        layout: The layout that the script is for.
        guarded: Whether the last of KEYS only keeps Redis from running the script, and none of it is for the script.

    Raises:
        FileNotFoundError: There is no such operation or include.
    """
    source = _source_of(operation)
    body = _check(source) + _code(source)
    body = _with_needed(_bindings(source), body)
    first = _first(source, layout)
    definitions = _definitions([*included(source), *_OF_LOADER], layout, set())
    rest = [definition for definition in definitions if definition not in first]
    text = GUARDED if guarded else ""
    text += _of_other(source, body, layout) + "".join(first) + _with_needed(rest, body)
    made = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    _texts[made.sha] = text
    return made


def text_of(sha: str) -> str | None:
    """Returns the text of a script that this process has loaded, by its SHA-1; None for any other."""
    return _texts.get(sha)


def parameters(source: str) -> dict[str, list[Parameter]]:
    """Returns what the header of an operation says of its ``KEYS`` and ``ARGV``, in their order."""
    found: dict[str, list[Parameter]] = {"KEYS": [], "ARGV": []}
    at = {"KEYS": 1, "ARGV": 1}
    for of, names, more, kind, fields in _PARAMETER.findall(source):
        for name in names.split(", "):
            found[of].append(Parameter(name, at[of], kind, bool(more), tuple(fields.split(", ")) if fields else ()))
            at[of] += len(ROLES) if of == "KEYS" and not kind else found[of][-1].width
    return found


def parameters_of(operation: str) -> dict[str, list[Parameter]]:
    """Returns what the header of an operation says, see ``parameters``."""
    return parameters(_source_of(operation))


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
    if (directory() / own).is_file():
        return own
    return _of_features().get(include, f"include/shared/{include}.lua")


@cache
def _of_features() -> dict[str, str]:
    """Returns the paths of the includes of features, under ``lua/``, by their names."""
    return {path.stem: path.relative_to(directory()).as_posix() for path in directory().glob("*/include/*.lua")}


def _bindings(source: str) -> list[str]:
    """Returns the code that binds keys and arguments to the names that the header gives them."""
    of = parameters(source)
    return [*map(_bound_key, of["KEYS"]), *(_bound_argument(each, of["KEYS"]) for each in of["ARGV"])]


def _bound_key(key: Parameter) -> str:
    if key.is_rest:
        return _rest(key, "KEYS", "KEYS[i]")
    if key.kind:
        return f"local {key.name} = KEYS[{key.at}]\n"
    fields = ", ".join(f"{role} = KEYS[{at}]" for at, role in enumerate(ROLES, key.at))
    return f"local {key.name} = {{ {fields} }}\n"


def _bound_argument(argument: Parameter, keys: list[Parameter]) -> str:
    name, at, kind, is_rest, fields = argument
    if kind == "PRIORITIES":
        return f"local function {name}(priority)\n  return KEYS[{keys[-1].at} + ARGV[{at} + priority]]\nend\n"
    if fields:
        row = "".join(f"    {field} = ARGV[i + {n}],\n" for n, field in enumerate(fields))
        return _rest(argument, "ARGV", f"{{\n{row}  }}")
    if is_rest:
        return _rest(argument, "ARGV", "ARGV[i]")
    return f"local {name} = {_AS[kind].format(at)}\n"


def _rest(all_others: Parameter, of: str, value: str) -> str:
    """Returns the code that makes a list of all KEYS or ARGV from a place on."""
    name = all_others.name
    loop = f"for i = {all_others.at}, #{of}, {all_others.width} do\n  {name}[#{name} + 1] = {value}\nend\n"
    return f"local {name} = {{}}\n{loop}"


def _check(source: str) -> str:
    """Returns the code that checks the types of an operation's keys."""
    if _UNCHECKED in source:
        return ""
    expected, others = "", ""
    for key in parameters(source)["KEYS"]:
        if key.is_rest:
            others = f"  for i = {key.at}, #KEYS do\n    expected[KEYS[i]] = '{key.kind.lower()}'\n  end\n"
        elif key.kind:
            expected += f"    [{key.name}] = '{key.kind.lower()}',\n"
        else:
            types = "TYPES" if key.name == "keys" else "other.TYPES"
            expected += "".join(f"    [{key.name}.{role}] = {types}.{role},\n" for role in ROLES)
    check = "  local wrong = wrong_type(expected)\n  if wrong then\n    return wrong\n  end\n"
    return f"do\n  local expected = {{\n{expected}  }}\n{others}{check}end\n"


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
    definitions = _definitions([*includes, *_OF_LOADER], other, set())
    # This code stands before the script's own definitions, so it does not see them.
    return f"local other = (function()\n{_with_needed(definitions, table)}end)()\n"


def _code(source: str) -> str:
    """Returns the text of a file without comments: Redis would keep them, and a first EVAL would carry them."""
    return _COMMENT.sub("", source).lstrip("\n")


def _source_of(operation: str) -> str:
    return _source(operations().get(operation, f"{operation}.lua"))


def _source(path: str) -> str:
    return (directory() / path).read_text(encoding="utf-8")
