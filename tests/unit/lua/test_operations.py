"""Operations are declared as their Lua files say, and make their calls and read replies as they are declared."""

from importlib import import_module
from typing import Any, NamedTuple

import pytest

from kombu_delayq.redis import scripts
from kombu_delayq.redis.operations import HashKey, ListKeys, Operation, Priorities, Rows, Stored, declared
from tests.support import ROOT
from tests.support.lua.scripts import FORMS, OPERATIONS


def test_each_lua_file_is_declared_as_its_header_says() -> None:
    """There is a declaration of each Lua file, which has the names, the order and the types of its header."""
    for path in (path for root in ("kombu_delayq", "celery_ext") for path in (ROOT / root).rglob("*.py")):
        if "\n@operation(" in path.read_text(encoding="utf-8"):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert sorted(declared) == OPERATIONS
    for name, layout in FORMS:
        assert declared[name].layout in (None, layout, "hash"), name
        assert declared[name].script(layout) == scripts.load(name, layout)
        assert callable(declared[name].read)


class Row(NamedTuple):
    """A row of some."""

    id: str
    due: float


class Both(NamedTuple):
    """A key and an argument."""

    paused: HashKey
    flag: bool


HEADER = """\
-- Moves things.
-- KEYS keys
-- KEYS paused    HASH
-- KEYS ready...  LIST
-- ARGV flag      FLAG
-- ARGV count     NUMBER
-- ARGV list_of   PRIORITIES
-- ARGV rows...   {id, due}
"""


def move(*, keys: Stored, both: Both, ready: ListKeys, count: int | None, list_of: Priorities, rows: Rows[Row]) -> str:
    """Is declared below."""
    return ""


def header(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Lets each Lua file have this header."""
    monkeypatch.setattr(scripts, "parameters_of", lambda _: scripts.parameters(text))
    monkeypatch.setattr(scripts, "load", lambda *_, **__: scripts.Script("text", "sha"))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("paused ", "noted "),
        ("HASH", "ZSET"),
        ("FLAG", "NUMBER"),
        ("FLAG", "  "),
        ("NUMBER", "FLAG"),
        ("PRIORITIES", ""),
        ("ready...", "ready"),
        ("rows...", "rows"),
        ("{id, due}", "{id, at}"),
        ("{id, due}", "{id}"),
        ("-- ARGV count     NUMBER\n", ""),
        ("-- KEYS keys\n-- KEYS paused    HASH\n", "-- KEYS paused    HASH\n-- KEYS keys\n"),
    ],
)
def test_a_declaration_that_is_not_the_header_is_an_error(
    monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
) -> None:
    """Each way in which a header and a declaration part is found when the script is loaded."""
    assert right in HEADER
    header(monkeypatch, HEADER)
    assert Operation(move).script("hash").sha == "sha"
    header(monkeypatch, HEADER.replace(right, wrong))
    with pytest.raises(TypeError, match=r"move: (KEYS|ARGV) are declared as"):
        Operation(move).script("hash")


def test_a_call_has_its_keys_and_arguments_in_order() -> None:
    """What stands for several is taken apart; booleans and None become what scripts read."""
    call = Operation(move)(
        keys="abcd", both=Both("p", flag=True), ready=["r", "s"], count=None, list_of=range(10), rows=[Row("i", 1.5)]
    )
    assert (call.keys, call.args) == ([*"abcdprs"], [1, "", *range(10), "i", 1.5])
    assert call.on("redisson").layout == "redisson"


def read(of: Any, reply: Any) -> Any:
    """Reads the reply of an operation that is declared with a type of its reply."""

    def stub() -> None: ...

    stub.__annotations__["return"] = of
    return Operation(stub).read(reply)


@pytest.mark.parametrize(
    ("of", "reply", "result"),
    [
        (str, b"a", "a"),
        (bytes, "a", b"a"),
        (int, b"7", 7),
        (int, b"", 0),
        (float | None, b"", None),
        (float | None, b"0", 0.0),
        (list[str], [b"a", "b"], ["a", "b"]),
        (tuple[str, bool, list[bytes]], [b"a", 1, ["b"]], ("a", True, [b"b"])),
        (Row, [b"a", b"1.5"], Row("a", 1.5)),
        (Any, [b"a"], [b"a"]),
    ],
)
def test_a_reply_is_read_as_it_is_declared(of: Any, reply: Any, result: Any) -> None:
    """The type of a reply says what its texts are."""
    assert read(of, reply) == result
