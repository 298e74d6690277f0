"""``index.lua``: makes messages that other clients have offered findable by their ids."""

import struct

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, popped, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.redisson_layout import entry, index_page, offer, task

pytestmark = redisson_only


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("count", [1, 5, 250])
def test_messages_of_other_clients_are_found_from_then_on(store: DelayStore, count: int, old: bool) -> None:
    """However many they are, before, between and behind ours, each is found by its id; a second time none is new."""
    store.delivery.offer("q", waiting("ours"))
    for number in range(1, count + 1):
        offer(store, number, task(f"i{number}"), FUTURE_MS + number % 3, old=old)
    store.delivery.offer("q", waiting("ours too"))
    assert store.lookup.index("q") == count
    assert store.lookup.index("q") == 0
    before = contents(store.client)
    ids = [f"i{number}" for number in range(1, count + 1)]
    assert {each: [message.body for message in found] for each, found in store.lookup.get(["q"], ids).items()} == {
        each: [task(each)] for each in ids
    }
    assert contents(store.client) == before


def test_nothing_is_looked_at_while_nobody_else_offers(store: DelayStore) -> None:
    """While all messages are ours, one short call tells so, whatever is waiting."""
    store.delivery.offer("q", *(waiting(f"i{number}") for number in range(300)))
    store.client.config_resetstat()
    assert store.lookup.index("q") == 0
    stats = store.client.info("commandstats")
    assert "cmdstat_zrange" not in stats
    assert stats["cmdstat_evalsha"]["calls"] + stats.get("cmdstat_eval", {"calls": 0})["calls"] <= 2


@pytest.mark.parametrize(
    "message", [b"", b"no JSON", b"[]", b"null", b'{"headers": 1}', b"\xff\x00", b'{"headers": {}}']
)
def test_a_message_without_an_id_gets_the_name_of_its_entry(store: DelayStore, message: bytes) -> None:
    """Whatever another client offers can be named, and cancelled by that name."""
    offer(store, 7, message)
    [found] = by_id.browse(store, "q")
    assert (found.id, found.body) == ("entry-0807000000000000", message)
    assert store.lookup.cancel(["q"], [found.id]) == {found.id: [found]}
    assert store.queues.size("q") == 0


@pytest.mark.parametrize(
    ("priority", "step"),
    [*((each, 0) for each in ("NaN", "-Infinity", "-1", '"x"', "[1]", "null")), ("3.7", 3), ("10", 9), ("1e999", 9)],
)
def test_a_priority_that_is_none_does_not_stop_a_queue(store: DelayStore, priority: str, step: int) -> None:
    """A message with nonsense for its priority is delivered with the nearest that there is, or 0."""
    message = f'{{"properties": {{"priority": {priority}}}}}'.encode()
    offer(store, 7, message, PAST_MS)
    assert store.delivery.transfer("q").moved == 1
    assert popped(store.client, f"{{q}}\x06\x16{step}" if step else "q") == [message]


def test_an_entry_that_only_looks_like_ours_does_not_stop_a_queue(store: DelayStore) -> None:
    """An entry with our marks and a priority that does not exist is delivered."""
    made = b"\x07\x00\x00\x00\x01\xff\x01\x00" + struct.pack("<Q", 4) + b"body"
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), {made: PAST_MS})
    assert store.delivery.transfer("q").moved == 1
    assert popped(store.client, "{q}\x06\x169") == [b"body"]


def test_messages_that_come_while_the_list_is_swept_are_found(store: DelayStore) -> None:
    """Between two pages of a search, others offer messages, and a sweep puts the list's tail behind some of them."""
    store.delivery.offer("q", *(waiting(f"ours{n}") for n in range(120)))
    for number in range(1, 21):
        offer(store, number, task(f"early{number}"), FUTURE_MS + 2)
    tail = store.client.lindex(RedissonKeys(store.keys).listed("q"), -1)
    after = [b"", b"", b""]
    for _ in range(14):
        word, _, *after = index_page(store, *after)
        assert word == b"more"
    late = {f"late{number}": entry(number, task(f"late{number}")) for number in range(100, 200)}
    for number in range(100, 200):
        offer(store, number, task(f"late{number}"), FUTURE_MS - 1)
    store.delivery.offer("q", *(waiting(f"gone{n}", FUTURE_MS + 3) for n in range(900)))
    gone = iter(range(900))

    def order() -> list[bytes]:
        return list(store.client.lrange(RedissonKeys(store.keys).listed("q"), 0, -1))

    while order()[0] not in late.values():
        store.lookup.cancel(["q"], [f"gone{next(gone)}"])
    assert order().index(tail) > order().index(late["late199"])
    while word == b"more":
        word, _, *after = index_page(store, *after)
    assert store.lookup.get(["q"], list(late)).keys() == late.keys()


def test_the_index_stays_bounded_where_others_offer_and_transfer_all(store: DelayStore) -> None:
    """Where we only look for messages, what others have offered and transferred since is forgotten."""
    timeout = RedissonKeys(store.keys).timeout("q")
    offer(store, 1, task("far"), FUTURE_MS + 1)
    for first in range(100, 4100, 100):
        for number in range(first, first + 100):
            offer(store, number, task(f"i{number}"))
        assert store.lookup.get(["q"], [f"i{first}", "unknown"]).keys() == {f"i{first}"}
        entries = store.client.zrangebyscore(timeout, 0, FUTURE_MS)
        with store.client.pipeline() as pipe:
            for made in entries:
                pipe.lrem(RedissonKeys(store.keys).listed("q"), 1, made)
            pipe.zrem(timeout, *entries)
            pipe.execute()
        assert store.client.hlen(RedissonKeys(store.keys).ids("q")) <= 1000 + 2.5 * 101 + 100
    assert list(store.lookup.get(["q"], ["far", "i100"])) == ["far"]


def test_a_message_that_others_reschedule_is_found(store: DelayStore) -> None:
    """After another program has given an entry another due time, its message is found again by its id, once."""
    offer(store, 1, task("i"))
    offer(store, 2, task("i"), FUTURE_MS + 1)
    assert len(store.lookup.get(["q"], ["i"])["i"]) == 2
    timeout = RedissonKeys(store.keys).timeout("q")
    store.client.zadd(timeout, {entry(1, task("i")): FUTURE_MS + 5})
    store.client.hdel(RedissonKeys(store.keys).notes("q"), "tail")  # so that others' messages are looked for
    assert store.lookup.index("q") == 1
    assert [each.due_ms for each in store.lookup.get(["q"], ["i"])["i"]] == [FUTURE_MS + 1, FUTURE_MS + 5]
