"""``held_page.lua``: counts by queue the messages that consumers hold."""

import json

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.figures import HELD_COUNT
from tests.support.store.consuming import fetch, lives, message
from tests.support.store.keyspace import QUEUE_NAMES, contents

#: The keys of a plain server, where a page goes through what is held of all queues.
INDEX, UNACKED = "unacked_index", "unacked"
PAGES = pytest.mark.plain_server


def test_messages_in_hand_are_counted_by_queue(store: DelayStore) -> None:
    """Messages that our consumers hold count for their queues, more than a call looks at, and nothing is changed."""
    counts = {"p": HELD_COUNT + 3, "q": 2}
    lives(store, queues=("p", "q"))
    for first, (queue, count) in zip((1, 1000), counts.items(), strict=True):
        store.client.lpush(queue, *(json.dumps(message(number)) for number in range(count)))
        assert len(fetch(store, count, queue, first=first)) == count
    before = contents(store.client)
    assert store.figures.held() == counts
    assert contents(store.client) == before


def test_nothing_is_held(store: DelayStore) -> None:
    """Where nobody holds a message there is no queue."""
    assert store.figures.held() == {}


@PAGES
@pytest.mark.parametrize("queue", [*QUEUE_NAMES[:-1], 'a"b', '"', "a\\", '\\"', '","x'])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_notes_of_stock_kombu_count_by_routing_key(store: DelayStore, queue: str, separators: tuple[str, str]) -> None:
    """The notes of stock kombu count by routing key, whatever characters it has."""
    note = json.dumps([message(1), "an exchange", queue], separators=separators)
    store.client.hset(UNACKED, "tag", note)
    store.client.zadd(INDEX, {"tag": 1, "without a note": 2})
    assert store.figures.held() == {queue: 1}


@PAGES
def test_large_messages_are_read_in_several_calls(store: DelayStore) -> None:
    """Calls end after some hundred kB, and go on where the one before ended."""
    for number in range(40):
        store.client.hset(UNACKED, str(number), json.dumps([{"body": "x" * 50_000}, "", f"q{number % 2}"]))
        store.client.zadd(INDEX, {str(number): number})
    assert store.figures.held() == {"q0": 20, "q1": 20}
    assert 3 <= sum(store.figures.held(3).values()) < 40


@PAGES
def test_a_note_that_is_none_counts_without_a_queue(store: DelayStore) -> None:
    """What somebody else has noted counts under an empty name."""
    store.client.hset(UNACKED, mapping={"a": "no note", "b": '[{}, "", 7]'})
    store.client.zadd(INDEX, {"a": 1, "b": 2})
    assert store.figures.held() == {"": 2}
