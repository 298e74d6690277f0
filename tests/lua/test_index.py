"""``index.lua``: makes messages that other clients have offered findable by their ids."""

import json
import struct

import pytest

from kombu_delayq.store import DelayStore
from tests.lua.conftest import MakeStore
from tests.lua.keyspace import FUTURE_MS, PAST_MS, contents, popped, refuses_a_key_of_the_wrong_type, waiting


@pytest.fixture
def listed(make_store: MakeStore) -> DelayStore:
    """A store in Redisson's form."""
    return make_store(backup="list")


def task(identity: str) -> bytes:
    """Makes a message as another client may write it."""
    return json.dumps({"headers": {"task": "t", "id": identity}, "properties": {}}).encode()


def entry(number: int, message: bytes, *, old: bool = False) -> bytes:
    """Makes an entry as Redisson does: with a double (old), or with 8 bytes and their number before them."""
    length = struct.pack("<Q", len(message))
    return (struct.pack("<d", number) if old else b"\x08" + struct.pack("<q", number)) + length + message


def offer(store: DelayStore, number: int, message: bytes, due_ms: float = FUTURE_MS, *, old: bool = False) -> None:
    """Offers a message as Redisson does."""
    made = entry(number, message, old=old)
    store.client.zadd(store.keys.timeout("q"), {made: due_ms})
    store.client.rpush(store.keys.listed("q"), made)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("count", [1, 5, 250])
def test_messages_of_other_clients_are_found_from_then_on(listed: DelayStore, count: int, old: bool) -> None:
    """However many they are, before, between and behind ours, each is found by its id; a second time none is new."""
    listed.offer("q", waiting("ours"))
    for number in range(1, count + 1):
        offer(listed, number, task(f"i{number}"), FUTURE_MS + number % 3, old=old)
    listed.offer("q", waiting("ours too"))
    assert listed.index("q") == count
    assert listed.index("q") == 0
    before = contents(listed.client)
    ids = [f"i{number}" for number in range(1, count + 1)]
    assert {each: [message.body for message in found] for each, found in listed.get(["q"], ids).items()} == {
        each: [task(each)] for each in ids
    }
    assert contents(listed.client) == before


def test_nothing_is_looked_at_while_nobody_else_offers(listed: DelayStore) -> None:
    """While all messages are ours, one short call tells so, whatever is waiting."""
    listed.offer("q", *(waiting(f"i{number}") for number in range(300)))
    listed.client.config_resetstat()
    assert listed.index("q") == 0
    stats = listed.client.info("commandstats")
    assert "cmdstat_zrange" not in stats
    assert stats["cmdstat_evalsha"]["calls"] + stats.get("cmdstat_eval", {"calls": 0})["calls"] <= 2


@pytest.mark.parametrize(
    "message", [b"", b"no JSON", b"[]", b"null", b'{"headers": 1}', b"\xff\x00", b'{"headers": {}}']
)
def test_a_message_without_an_id_gets_the_name_of_its_entry(listed: DelayStore, message: bytes) -> None:
    """Whatever another client offers can be named, and cancelled by that name."""
    offer(listed, 7, message)
    [found] = listed.browse("q").messages
    assert (found.id, found.body) == ("entry-0807000000000000", message)
    assert listed.cancel(["q"], [found.id]) == {found.id: [found]}
    assert listed.size("q") == 0


def test_a_key_of_the_wrong_type_is_refused_by_name(listed: DelayStore) -> None:
    """Somebody else's key in the way is named, and nothing changes."""
    for key in listed.keys.stored("q", "list"):
        listed.client.flushall()
        offer(listed, 1, task("i"))
        refuses_a_key_of_the_wrong_type(listed, key, lambda: listed.index("q"))


@pytest.mark.parametrize(
    ("priority", "step"),
    [*((each, 0) for each in ("NaN", "-Infinity", "-1", '"x"', "[1]", "null")), ("3.7", 3), ("10", 9), ("1e999", 9)],
)
def test_a_priority_that_is_none_does_not_stop_a_queue(listed: DelayStore, priority: str, step: int) -> None:
    """A message with nonsense for its priority is delivered with the nearest that there is, or 0."""
    message = f'{{"properties": {{"priority": {priority}}}}}'.encode()
    offer(listed, 7, message, PAST_MS)
    assert len(listed.transfer("q").lateness_ms) == 1
    assert popped(listed.client, f"q\x06\x16{step}" if step else "q") == [message]


def test_an_entry_that_only_looks_like_ours_does_not_stop_a_queue(listed: DelayStore) -> None:
    """An entry with our marks and a priority that does not exist is delivered."""
    made = b"\x07\x00\x00\x00\x01\xff\x01\x00" + struct.pack("<Q", 4) + b"body"
    listed.client.zadd(listed.keys.timeout("q"), {made: PAST_MS})
    assert len(listed.transfer("q").lateness_ms) == 1
    assert popped(listed.client, "q\x06\x169") == [b"body"]
