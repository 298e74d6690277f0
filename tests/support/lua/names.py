"""Which names a Lua file defines for others, and which it takes from others."""

import re

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis import scripts

_DEFINED = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_NAME = r"[A-Za-z_]\w*"
#: Where a name is declared: ``local a, b``, ``local function f``, the parameters of a function, ``for a, b in``.
_DECLARED = re.compile(
    rf"\blocal (?:function )?({_NAME}(?:, {_NAME})*)"
    r"|\bfunction *[\w.:]*\(([^)]*)\)"
    rf"|\bfor ({_NAME}(?:, {_NAME})*) (?:in|=)"
)
#: A name that stands for a value: no field, no key of a table.
_USED = re.compile(rf"(?:(?<![.:\w])|(?<=\.\.))({_NAME})\b(?! *=[^=])")


def source_of(path: str) -> str:
    """Returns the text of a file under ``lua/``, which is named by its path or, if it is an operation, by its name."""
    return (scripts.directory() / scripts.operations().get(path, path)).read_text(encoding="utf-8")


def defined_in(source: str) -> list[str]:
    """Returns the functions and locals that an include defines for those who include it."""
    return [name for names in _DEFINED.findall(source) for name in names.split(", ")]


def used_in(source: str) -> set[str]:
    """Returns the names that a file uses and does not declare itself: those of others, and Lua's."""
    code = re.sub(r"--.*|'(?:\\.|[^'\\])*'", "", source)
    declared = {name for groups in _DECLARED.findall(code) for names in groups for name in names.split(", ")}
    return set(_USED.findall(code)) - declared


def included_by(path: str, layout: str) -> list[str]:
    """Returns the paths of the includes that a file names, for a script of one layout."""
    return [scripts.path_of(include, layout) for include in scripts.included(source_of(path))]


def included_first(path: str, layout: str) -> list[str]:
    """Returns the paths of the include that a file runs first, for a script of one layout."""
    include = scripts.included_first(source_of(path), layout)
    return [] if include is None else [scripts.path_of(include, layout)]


def included_of_other(path: str, layout: str) -> list[str]:
    """Returns the paths of the includes of the other layout that a file names, for a script of one layout."""
    [other] = {*LAYOUTS} - {layout}
    return [scripts.path_of(include, other) for include in scripts.included_of_other(source_of(path))]


def complaints(path: str, layout: str, definitions: dict[str, str]) -> list[str]:
    """Returns what a file uses and does not include itself, and what it includes and does not use.

    Args:
        path: Path of the file, under ``lua/``.
        layout: The layout for which it is read.
        definitions: All names that includes define for this layout, each with the path of its include.
    """
    source = source_of(path)
    bound = {each.name for of in scripts.parameters(source).values() for each in of}
    needed = {definitions[name]: name for name in used_in(source) - bound if name in definitions}
    included = included_by(path, layout)
    found = [
        f"{needed[include]} is in {include}, which is not included" for include in needed if include not in included
    ]
    found += [f"{include} is included and not used" for include in included if include not in needed]
    called = set(re.findall(r"\bother\.(\w+)", source))
    for include in included_of_other(path, layout):
        own = called.intersection(defined_in(source_of(include)))
        called -= own
        if not own:
            found.append(f"{include} is included of the other layout and not used")
    return found + [f"other.{name} is in no include of the other layout" for name in sorted(called)]
