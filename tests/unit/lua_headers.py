"""Reads the header of a Lua file, and what the body under it really uses."""

import re
from dataclasses import dataclass, field

_NAMED = re.compile(r"-- (KEYS|ARGV)\[(\d*)(\.\.\.)?\d*\]\s+(\S+)(?:\s+(\S+))?")
_TYPES = {"ZSET", "HASH", "STRING", "SET", "LIST"}


@dataclass
class Arguments:
    """KEYS or ARGV of a script: the name of each position, and from where on there are any number."""

    names: dict[int, str] = field(default_factory=dict)
    rest: int | None = None


@dataclass
class Header:
    sentence: str
    arguments: dict[str, Arguments]
    types: list[str]
    labels: list[str]


def split(source: str) -> tuple[list[str], str]:
    """Returns the lines of a file's header, and the body."""
    lines = source.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return lines[:end], "\n".join(lines[end:])


def read_header(source: str) -> Header:
    lines, _ = split(source)
    arguments = {"KEYS": Arguments(), "ARGV": Arguments()}
    types = []
    for line in lines:
        if match := _NAMED.match(line):
            kind, number, dots, name, type_ = match.groups()
            if dots:
                arguments[kind].rest = int(number or 1)
            else:
                arguments[kind].names[int(number)] = name
            if kind == "KEYS":
                types.append(type_)
    labels = [match[1] for line in lines if (match := re.match(r"-- (Returns|Atomic|Cost)\b", line))]
    return Header(lines[0].removeprefix("-- "), arguments, types, labels)


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
    """Returns from which position on a body reads whatever there is."""
    firsts = re.findall(rf"for \w+ = (\d+), #{kind}\b", body) + re.findall(rf"{kind}\[(\d+) \+", body)
    firsts += re.findall(rf"unpack\({kind}, (\d+)\)", body)
    firsts += ["1"] * len(re.findall(rf"ipairs\({kind}\)", body))
    return min(map(int, firsts)) if firsts else None


def complaints(source: str) -> list[str]:
    """Returns what a file's header says otherwise than its body does, or leaves out."""
    header, used = read_header(source), read_body(source)
    found = []
    for kind, said in header.arguments.items():
        if said != used[kind]:
            found.append(f"{kind}: the header names {said}, the body uses {used[kind]}")
        first = len(said.names) + 1
        if sorted(said.names) != list(range(1, first)) or said.rest not in (None, first):
            found.append(f"{kind} are not numbered without gaps: {said}")
    if not re.fullmatch(r"[A-Z][^.]*\.", header.sentence):
        found.append(f"does not begin with a sentence: {header.sentence!r}")
    if header.labels != ["Returns", "Atomic", "Cost"]:
        found.append(f"does not say Returns, Atomic, Cost, in this order: {header.labels}")
    found += [f"a key's type is not one of {_TYPES}: {type_!r}" for type_ in header.types if type_ not in _TYPES]
    return found
