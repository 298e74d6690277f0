"""The header of each Lua file says what its body does."""

from pathlib import Path

import pytest

from kombu_delayq import scripts
from tests.unit.lua_headers import complaints

OPERATIONS = sorted(scripts.directory().glob("*.lua"))
GOOD = """\
-- Moves things.
-- KEYS[1] due     ZSET  what
-- KEYS[2...] ready  LIST  where
-- ARGV[1] count   how many
-- Returns number moved
-- Atomic: all or none.
-- Cost: O(1)
-- @include clock

local due = KEYS[1]
local count = tonumber(ARGV[1])
for i = 2, #KEYS do
  redis.call('LPUSH', KEYS[i], due, count)
end
"""


@pytest.mark.parametrize("path", OPERATIONS, ids=lambda path: path.name)
def test_header_names_what_the_body_uses(path: Path) -> None:
    """The header of an operation names exactly the KEYS and ARGV that the body uses, as the body calls them."""
    assert complaints(path.read_text(encoding="utf-8")) == []


def test_there_are_operations() -> None:
    """The check above has something to check."""
    assert len(OPERATIONS) >= 8
    assert complaints(GOOD) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("-- ARGV[1] count   how many\n", ""),
        ("-- ARGV[1] count   how many\n", "-- ARGV[1] count   how many\n-- ARGV[2] size  unused\n"),
        ("-- ARGV[1] count ", "-- ARGV[1] number "),
        ("-- KEYS[1] due ", "-- KEYS[1] backup "),
        ("KEYS[2...]", "KEYS[3...]"),
        ("-- KEYS[2...] ready  LIST  where\n", ""),
        ("for i = 2, #KEYS do", "for i = 3, #KEYS do"),
        ("local count = tonumber(ARGV[1])", "local count = tonumber(ARGV[2])"),
        ("'LPUSH', KEYS[i]", "'LPUSH', KEYS[2]"),
        ("LIST", "QUEUE"),
        ("-- Moves things.", "-- moves things"),
        ("-- Returns number moved\n", ""),
        ("-- Atomic: all or none.\n", ""),
        ("-- Cost: O(1)\n", ""),
    ],
)
def test_a_header_that_has_aged_is_found(right: str, wrong: str) -> None:
    """Each way in which a header and its body part is found."""
    assert right in GOOD
    assert complaints(GOOD.replace(right, wrong))
