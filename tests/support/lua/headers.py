"""Reads the header of a Lua file, and which keys and arguments the body under it uses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis.scripts import ROLES
from tests.support.lua.names import source_of

#: ``KEYS[1] due  ZSET  ...``; the four of a queue, ``KEYS[1-4] keys``; from one on any number, ``KEYS[5...] ready
#: LIST``; several in turn, ``KEYS[3...] due, bodies  ZSET, HASH``.
_NAMED = re.compile(r"-- (KEYS|ARGV)\[(\d*)(\.\.\.|-\d+)?\d*\]\s+(\w+(?:, \w+)*)(?:\s+(\w+(?:, \w+)*))?")
_TYPES = {"ZSET", "HASH", "STRING", "SET", "LIST", ""}
#: Commands that take a key of one type alone; those on ZSETs and HASHes begin with their letter.
_OF_TYPE = {
    "LIST": "LINDEX LLEN LMOVE LPOS LPUSH LRANGE LREM LSET LTRIM RPOP RPUSH",
    "SET": "SADD SMEMBERS SMISMEMBER SREM",
    "STRING": "BITFIELD GET INCRBY SET",
    "": "DEL EXISTS INFO PERSIST PEXPIRE PTTL PUBLISH PUBSUB TIME TYPE UNLINK",
}
#: Keys that are arguments, see ``lua/include/shared/counters.lua``: users may lack the right for them.
_AS_ARGUMENTS = {"counts": "HASH", "counting": "HASH", "minutes": "STRING"}
_TYPE_OF = {command: type_ for type_, commands in _OF_TYPE.items() for command in commands.split()}


@dataclass
class Arguments:
    """KEYS or ARGV of a script: the name of each position, and the first position of any number of them."""

    names: dict[int, str] = field(default_factory=dict)
    rest: int | None = None


@dataclass
class Header:
    """The contents of a header.

    Attributes:
        sentence: Its first line.
        arguments: ``KEYS`` and ``ARGV``.
        keys: Name and type of each key, empty for the four of a queue; keys of any number are there once.
        labels: Which of Returns, Atomic and Cost it has.
    """

    sentence: str
    arguments: dict[str, Arguments]
    keys: list[tuple[str, str]]
    labels: list[str]


def split(source: str) -> tuple[list[str], str]:
    """Returns the lines of a file's header, and the body."""
    lines = source.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return lines[:end], "\n".join(lines[end:])


def read_header(source: str) -> Header:
    """Reads the header of an operation."""
    lines, _ = split(source)
    arguments = {"KEYS": Arguments(), "ARGV": Arguments()}
    keys: list[tuple[str, str]] = []
    for line in lines:
        if match := _NAMED.match(line):
            kind, number, more, names, types = match.groups()
            if more == "...":
                arguments[kind].rest = int(number or 1)
            else:
                last = int(more[1:]) if more else int(number)
                arguments[kind].names |= dict.fromkeys(range(int(number), last + 1), names)
            if kind == "KEYS" and more not in (None, "..."):
                keys.append((names, ""))
            elif kind == "KEYS":
                keys += zip(names.split(", "), (types or "").split(", "), strict=True)
    labels = [match[1] for line in lines if (match := re.match(r"-- (Returns|Atomic|Cost)\b", line))]
    return Header(lines[0].removeprefix("-- "), arguments, keys, labels)


def read_body(source: str) -> dict[str, Arguments]:
    """Finds the positions of ARGV that a body uses, and the names it binds them to; and the keys that it uses."""
    header, (_, body) = read_header(source), split(source)
    keys = {at: name for at, name in header.arguments["KEYS"].names.items() if re.search(rf"(?<![.\w]){name}\b", body)}
    return {
        "KEYS": Arguments(keys | _bound(body, "KEYS"), _rest(body, "KEYS")),
        "ARGV": Arguments(_bound(body, "ARGV"), _rest(body, "ARGV")),
    }


def _bound(body: str, kind: str) -> dict[int, str]:
    bound = {int(number): "" for number in re.findall(rf"{kind}\[(\d+)\]", body)}
    for names, values in re.findall(r"^local ([\w, ]+) = (.+)$", body, re.MULTILINE):
        for name, value in zip(names.split(", "), values.split(", "), strict=False):
            if match := re.search(rf"{kind}\[(\d+)\]", value):
                bound[int(match[1])] = name
    for table in re.findall(r"\{[^{}]*\}", body):
        bound |= {int(number): name for name, number in re.findall(rf"(\w+) = {kind}\[(\d+)\]", table)}
    return bound


def _rest(body: str, kind: str) -> int | None:
    """Returns the position from which on a body reads any number of arguments."""
    firsts = re.findall(rf"for \w+ = (\d+), #{kind}\b", body) + re.findall(rf"{kind}\[(\d+) \+", body)
    firsts += re.findall(rf"(?:all_from|unpack)\({kind}, (\d+)\)", body)
    firsts += ["1"] * len(re.findall(rf"ipairs\({kind}\)", body))
    return min(map(int, firsts)) if firsts else None


def complaints(source: str) -> list[str]:
    """Returns where a file's header contradicts its body, or leaves something out."""
    header, used = read_header(source), read_body(source)
    found = []
    for kind, named in header.arguments.items():
        if named != used[kind]:
            found.append(f"{kind}: the header names {named}, the body uses {used[kind]}")
        first = len(named.names) + 1
        if sorted(named.names) != list(range(1, first)) or named.rest not in (None, first):
            found.append(f"{kind} are not numbered without gaps: {named}")
    if not re.fullmatch(r"[A-Z][^.]*\.", header.sentence):
        found.append(f"does not begin with a sentence: {header.sentence!r}")
    if header.labels != ["Returns", "Atomic", "Cost"]:
        found.append(f"does not say Returns, Atomic, Cost, in this order: {header.labels}")
    return found + [f"{name}: {said!r} is not one of {_TYPES}" for name, said in header.keys if said not in _TYPES]


def key_types(source: str, layout: str) -> list[dict[str, str]]:
    """Returns the type of each key that a header names, as it is for one layout.

    Twice where an operation works on both layouts at once: for its own keys, and for those of the other layout.
    """
    found: list[dict[str, str]] = [{**_AS_ARGUMENTS}]
    [other] = {*LAYOUTS} - {layout}
    for name, type_ in read_header(source).keys:
        if type_:
            found[-1][name] = type_
        elif name == "keys":
            found[-1] |= stored_types(layout)
        else:
            found.append(stored_types(other))
    return found


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
    if loop := re.search(rf"for _, {re.escape(expression)} in ipairs\((.*)\) do", text):
        expression = loop[1]
    words = re.findall(r"\w+", expression)
    return known[-1:] if "KEYS" in words else [name for name in known if name in words]
