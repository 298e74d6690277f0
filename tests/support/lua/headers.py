"""Reads the header of a Lua file, and which keys and arguments the body under it uses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kombu_delayq.options import LAYOUTS

#: ``KEYS[1] due  ZSET  ...``; from one on any number, ``KEYS[5...] ready  LIST``; several in turn,
#: ``KEYS[3...] due, bodies  ZSET, HASH``. ``HASH|LIST`` is the type in each layout.
_NAMED = re.compile(r"-- (KEYS|ARGV)\[(\d*)(\.\.\.)?\d*\]\s+(\w+(?:, \w+)*)(?:\s+([\w|]+(?:, [\w|]+)*))?")
_TYPES = {"ZSET", "HASH", "STRING", "SET", "LIST"}
#: Commands that take a key of one type alone; those on ZSETs and HASHes begin with their letter.
_OF_TYPE = {
    "LIST": "LINDEX LLEN LMOVE LPOS LPUSH LRANGE LREM LTRIM RPOP RPUSH",
    "SET": "SADD SMEMBERS SMISMEMBER SREM",
    "STRING": "BITFIELD GET INCR SET",
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
        keys: Name and type of each key; keys of any number are there once.
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
            kind, number, dots, names, types = match.groups()
            if dots:
                arguments[kind].rest = int(number or 1)
            else:
                arguments[kind].names[int(number)] = names
            if kind == "KEYS":
                keys += zip(names.split(", "), (types or "").split(", "), strict=True)
    labels = [match[1] for line in lines if (match := re.match(r"-- (Returns|Atomic|Cost)\b", line))]
    return Header(lines[0].removeprefix("-- "), arguments, keys, labels)


def read_body(source: str) -> dict[str, Arguments]:
    """Finds the positions that a body uses, and the names it binds them to."""
    _, body = split(source)
    return {kind: Arguments(_bound(body, kind), _rest(body, kind)) for kind in ("KEYS", "ARGV")}


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
    for name, said_types in header.keys:
        types = said_types.split("|")
        if not _TYPES.issuperset(types) or len(types) not in (1, len(LAYOUTS)):
            found.append(f"{name}: {said_types!r} is not one of {_TYPES}, or one for each layout")
    return found


def key_types(source: str, layout: str) -> list[dict[str, str]]:
    """Returns the type of each key that a header names, as it is for one layout.

    Twice where an operation works on both layouts at once: for its own keys, and for those of the other layout.
    """
    found: list[dict[str, str]] = [{**_AS_ARGUMENTS}]
    for name, type_names in read_header(source).keys:
        types = type_names.split("|")
        if name in found[-1]:
            found.append({})
        found[-1][name] = types[LAYOUTS.index(layout)] if len(types) > 1 else types[0]
    return found


def wrong_types(text: str, types: dict[str, str]) -> list[str]:
    """Returns where an expanded script uses a key as another type than its header gives.

    A command shows the type of its key; so does a table of types that keys are compared with. A key is called by its
    name wherever it is used: ``keys.due``, ``to.keys.due``, ``due``.

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
    for name, type_ in re.findall(r"(\w+) = '(\w+)'", "".join(re.findall(r"local TYPES = \{.*\}", text))):
        if name in known:
            yield name, type_.upper()
    for name, type_ in re.findall(r"\[(\w+)\] = '(\w+)'", "".join(re.findall(r"wrong_type\(\{.*?\}\)", text))):
        yield name, type_.upper()


def _names_of(text: str, expression: str, known: list[str]) -> list[str]:
    """Returns the keys for which an expression in a script may stand, with the keys that a loop goes through."""
    if loop := re.search(rf"for _, {re.escape(expression)} in ipairs\((.*)\) do", text):
        expression = loop[1]
    words = re.findall(r"\w+", expression)
    return known[-1:] if "KEYS" in words else [name for name in known if name in words]
