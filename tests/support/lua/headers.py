"""Reads the header of a Lua file, and compares it with the body under it."""

import re
from collections.abc import Iterator

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis.scripts import ROLES, parameters
from tests.support.lua.names import source_of, used_in
from tests.support.lua.scripts import INCLUDES

#: Commands that take a key of one type alone; those on ZSETs and HASHes begin with their letter.
_OF_TYPE = {
    "LIST": "LINDEX LLEN LMOVE LPOS LPUSH LRANGE LREM LSET LTRIM RPOP RPUSH",
    "SET": "SADD SMEMBERS SMISMEMBER SRANDMEMBER SREM",
    "STRING": "BITFIELD GET INCRBY SET",
    "": "DEL EXISTS INFO OBJECT PERSIST PEXPIRE PTTL PUBLISH PUBSUB TIME TYPE UNLINK",
}
#: Keys that are arguments, see ``lua/include/shared/counters.lua``: users may lack the right for them. And names of the
#: lists that ``fetch`` has in pairs.
_NO_KEYS = {"counts": "HASH", "counting": "HASH", "minutes": "STRING", "in_flight": "LIST", "ready": "LIST"}
#: The lists of a queue are read by priority.
_READ_BY_LOADER = {"ready"}
_TYPE_OF = {command: type_ for type_, commands in _OF_TYPE.items() for command in commands.split()}


def split(source: str) -> tuple[list[str], str]:
    """Returns the lines of a file's header, and the body."""
    lines = source.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return lines[:end], "\n".join(lines[end:])


def complaints(source: str) -> list[str]:
    """Returns where a file's header contradicts its body, or leaves something out."""
    lines, body = split(source)
    named = parameters(source)
    names = [each.name for of in named.values() for each in of]
    found = [f"{name} is not used" for name in names if name not in used_in(body) and name not in _READ_BY_LOADER]
    found += [f"{name} is named twice" for name in {*names} if names.count(name) > 1]
    found += [f"the body uses {of}" for of in named if re.search(rf"\b{of}\b", body)]
    found += [f"{line!r} is not read" for line in lines if re.match(r"-- (KEYS|ARGV)\b(?! \w+)", line)]
    found += [f"{each.name} has no type" for each in named["KEYS"] if each.is_rest and not each.kind]
    found += [f"{last.name} is not the last" for of in named.values() for last in of[:-1] if last.is_rest]
    if not re.fullmatch(r"-- [A-Z][^.]*\.", lines[0]):
        found.append(f"does not begin with a sentence: {lines[0]!r}")
    labels = [match[1] for line in lines if (match := re.match(r"-- (Returns|Atomic|Cost)\b", line))]
    if labels != ["Returns", "Atomic", "Cost"]:
        found.append(f"does not say Returns, Atomic, Cost, in this order: {labels}")
    return found


def key_types(source: str, layout: str) -> list[dict[str, str]]:
    """Returns the type of each key that a header names, as it is for one layout.

    Twice where an operation works on both layouts at once: for its own keys, and for those of the other layout.
    """
    found: list[dict[str, str]] = [{**_NO_KEYS, **_of_features()}]
    [other] = {*LAYOUTS} - {layout}
    for key in parameters(source)["KEYS"]:
        if key.kind:
            found[-1][key.name] = key.kind
        elif key.name == "keys":
            found[-1] |= stored_types(layout)
        else:
            found.append(stored_types(other))
    return found


def _of_features() -> dict[str, str]:
    """Returns the types of the keys whose names scripts of features make, by their ends, as an include checks them."""
    sources = [source_of(path) for path in INCLUDES if not path.startswith("include/")]
    found = [match for source in sources for match in re.findall(r"\[\w+ \.\. ':(\w+)'\] = '(\w+)'", source)]
    return {end: type_.upper() for end, type_ in found}


def stored_types(layout: str) -> dict[str, str]:
    """Returns the types of the keys of a queue's delayed messages in a layout, by their names in scripts."""
    found = re.findall(r"(\w+) = '(\w+)'", source_of(f"include/{layout}/types.lua"))
    assert [role for role, _ in found] == list(ROLES)
    return {role: type_.upper() for role, type_ in found}


def wrong_types(text: str, types: dict[str, str]) -> list[str]:
    """Returns where an expanded script uses a key as another type than its header gives.

    A command shows the type of its key. A key is called by its name wherever it is used: ``keys.due``,
    ``to.keys.due``, ``due``.

    Args:
        text: A script, or the part of one that works on one layout.
        types: The type of each key that it uses.
    """
    shown = [(name, type_) for name, type_ in _types_shown(text, list(types)) if types.get(name) != type_]
    return [f"{name} is said to be a {types.get(name)}, and used as a {type_}" for name, type_ in shown]


def _types_shown(text: str, known: list[str]) -> Iterator[tuple[str, str]]:
    for command, key in re.findall(r"\('([A-Z]{3,})'(?:, ([^,)]+))?", text):
        type_ = _TYPE_OF.get(command, {"Z": "ZSET", "H": "HASH"}.get(command[0], f"key for {command}"))
        if type_:
            yield from ((name, type_) for name in _names_of(text, key, known) or [key])


def _names_of(text: str, expression: str, known: list[str]) -> list[str]:
    """Returns the keys for which an expression in a script may stand, with the keys that a loop goes through."""
    if loop := re.search(rf"for \w+, {re.escape(expression)} in ipairs\((.*)\) do", text):
        expression = loop[1]
    words = re.findall(r"\w+", expression)
    return [name for name in known if name in words]
