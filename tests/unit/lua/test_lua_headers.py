"""The header of each Lua file says what its body does, for each layout."""

from inspect import isdatadescriptor, isfunction

import pytest

from celery_ext.features import key_names
from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis import scripts
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.lua.headers import complaints, key_types, wrong_types
from tests.support.lua.names import source_of
from tests.support.lua.scripts import FORMS, OPERATIONS

GOOD = """\
-- Moves things.
-- KEYS keys      which
-- KEYS paused    HASH  what
-- KEYS dead...   LIST  where
-- ARGV count     NUMBER  how many
-- Returns number moved
-- Atomic: all or none.
-- Cost: O(1)
-- @include clock

redis.call('HSET', paused, redis.call('ZCARD', keys.due))
redis.call('HLEN', keys.bodies)
for _, list in ipairs(dead) do
  redis.call('LPUSH', list, count)
end
"""


def test_header_names_what_the_body_uses() -> None:
    """The header of an operation names KEYS and ARGV that the body uses, all and once."""
    found = {operation: complaints(source_of(operation)) for operation in OPERATIONS}
    assert {operation: wrong for operation, wrong in found.items() if wrong} == {}


def test_header_says_of_which_type_the_keys_are() -> None:
    """In each layout all commands of an expanded script take the types of keys that its header says."""
    for operation, layout in FORMS:
        types = key_types(source_of(operation), layout)
        apart, _, own = scripts.load(operation, layout).text.rpartition("end)()\n")
        assert wrong_types(own, types[0]) == [], (operation, layout)
        assert len(types) == (2 if apart else 1), (operation, layout)
        if apart:
            assert wrong_types(apart, types[1]) == [], (operation, layout)


def test_header_and_keys_agree_on_types() -> None:
    """A header says of each key the type that the docstring in ``keys.py`` says."""
    for operation, layout in FORMS:
        documented = {form: documented_types(form, operation) for form in LAYOUTS}
        own, *others = key_types(source_of(operation), layout)
        [other] = {*LAYOUTS} - {layout}
        for types, form in ((own, layout), *((each, other) for each in others)):
            assert documented[form] | types == types | documented[form], (operation, form)


def documented_types(layout: str, operation: str = "transfer") -> dict[str, str]:
    """Returns the type that is said of each key which an operation may have, by the name that it has for the key."""
    feature = scripts.operations()[operation].rpartition("/")[0]
    keys, of_key, found = Keys(), {}, {}
    for kind in (Keys, RedissonKeys, *(kind for kind in key_names() if f".{feature}." in kind.__module__)):
        for name, attribute in vars(kind).items():
            type_ = (attribute.__doc__ or "").partition(" ")[0].removesuffix(":").removesuffix("s")
            if type_ not in ("ZSET", "HASH", "STRING", "SET", "LIST"):
                continue
            found[name] = type_
            if kind in (Keys, RedissonKeys) and isfunction(attribute) and attribute.__code__.co_argcount == 2:
                of_key[attribute(keys if kind is Keys else RedissonKeys(keys), "q")] = type_
            assert isfunction(attribute) or isdatadescriptor(attribute)
    roles = ("due", "bodies", "notes", "ids")
    return found | {role: of_key[key] for role, key in zip(roles, LAYOUT_OF[layout].keys(keys, "q"), strict=True)}


def test_there_are_keys_with_types() -> None:
    """The check above finds the types of the keys that have one."""
    found = documented_types("hash")
    assert found | {"bodies": "HASH", "notes": "STRING", "ids": "ZSET", "queues": "SET", "ready": "LIST"} == found
    assert documented_types("redisson") | {"bodies": "LIST", "notes": "HASH", "ids": "HASH"} == documented_types(
        "redisson"
    )


def test_there_are_operations() -> None:
    """The checks have something to check."""
    assert len(OPERATIONS) >= 8
    assert complaints(GOOD) == []
    assert wrong_types(GOOD, *key_types(GOOD, "hash")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("-- ARGV count ", "-- ARGV number "),
        ("-- ARGV count ", "-- ARGV[1] count "),
        ("-- ARGV count ", "-- ARGV dead "),
        ("-- KEYS keys ", "-- KEYS from "),
        ("-- KEYS keys ", "-- KEYS keys... "),
        ("ipairs(dead)", "ipairs(KEYS)"),
        ("LIST  where", "QUEUE  where"),
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


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("HASH  what", "LIST  what"),
        ("LIST  where", "SET  where"),
        ("'ZCARD', keys.due", "'HLEN', keys.due"),
        ("'ZCARD', keys.due", "'ZCARD', other"),
        ("'ZCARD', keys.due", "'ARCARD', keys.due"),
    ],
)
def test_a_type_that_is_not_that_of_the_commands_is_found(right: str, wrong: str) -> None:
    """Each way in which the types in a header and the commands under it part is found."""
    assert right in GOOD
    source = GOOD.replace(right, wrong)
    assert wrong_types(source, *key_types(source, "hash"))


def test_a_type_is_found_wrong_for_one_form_only() -> None:
    """A type may be right for one layout, and wrong for the other."""
    assert wrong_types(GOOD, *key_types(GOOD, "redisson")) == ["bodies is said to be a LIST, and used as a HASH"]
