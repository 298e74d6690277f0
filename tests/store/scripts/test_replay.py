"""``replay.lua``: takes dead letters out of their list, to a queue, or away."""

import pytest

from celery_ext.dead_letters.store import Letter, LetterStore
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents, popped, refuses_a_key_of_the_wrong_type


def bury(store: DelayStore, *messages: str | bytes, key: str = "dead") -> None:
    """Publishes dead letters, the oldest first."""
    store.client.lpush(key, *messages)


def to_queue(message: bytes, queue: str = "q", priority: int = 0) -> Letter:
    return Letter(message, "queue", queue, priority, b"new " + message)


def test_letters_leave_from_where_they_stand(store: DelayStore) -> None:
    """Each goes to its queue with its new body, or away; the others stay as they are."""
    bury(store, *"abcdefg")
    store.client.lpush("q", "ready before")
    letters = {0: to_queue(b"a"), 2: Letter(b"c", "away"), 5: to_queue(b"f")}
    assert store.part(LetterStore).replay("dead", "dead", letters) == [0, 2, 5]
    assert popped(store.client, "dead") == [b"b", b"d", b"e", b"g"]
    assert popped(store.client, "q") == [b"ready before", b"new a", b"new f"]


def test_letters_go_to_several_queues_and_priorities(store: DelayStore) -> None:
    """Letters of one call go to the lists of their queues and priorities, in their order."""
    bury(store, *"abcdef")
    letters = [
        to_queue(b"a", "q", 3),
        to_queue(b"b", "other", 9),
        to_queue(b"c", "q", 0),
        to_queue(b"d", "q", 5),
        to_queue(b"e", "other", 9),
    ]
    assert store.part(LetterStore).replay("dead", "dead", dict(enumerate(letters))) == [0, 1, 2, 3, 4]
    assert contents(store.client) == {
        b"dead": [b"f"],
        b"q": [b"new c"],
        b"{q}\x06\x163": [b"new d", b"new a"],
        b"{other}\x06\x169": [b"new e", b"new b"],
    }


def test_of_equal_letters_one_leaves(store: DelayStore) -> None:
    """A letter that stands there twice stays once, at either end of the list."""
    bury(store, *"abbcdde")
    assert store.part(LetterStore).replay("dead", "dead", {1: Letter(b"b", "away"), 5: Letter(b"d", "away")}) == [1, 5]
    assert popped(store.client, "dead") == [b"a", b"b", b"c", b"d", b"e"]


def test_letters_that_have_moved_are_dropped_all_the_same(store: DelayStore) -> None:
    """When others have left before them, the script finds them; what is not there is not counted."""
    bury(store, *"cdefg")
    letters = {at: Letter(message, "away") for at, message in ((2, b"a"), (4, b"c"), (5, b"d"), (6, b"f"))}
    assert store.part(LetterStore).replay("dead", "dead", letters) == [4, 5, 6]
    assert popped(store.client, "dead") == [b"e", b"g"]


def test_letters_are_dropped_from_a_full_redis(store: DelayStore) -> None:
    """A Redis that takes nothing more gives letters away, wherever they stand: that makes room."""
    bury(store, *"abcde")
    store.client.config_set("maxmemory", 1)
    try:
        assert store.part(LetterStore).replay("dead", "dead", {1: Letter(b"b", "away"), 3: Letter(b"d", "away")}) == [
            1,
            3,
        ]
    finally:
        store.client.config_set("maxmemory", 0)
    assert popped(store.client, "dead") == [b"a", b"c", b"e"]


def test_the_last_letter_takes_the_list_with_it(store: DelayStore) -> None:
    """When all letters have left, the key is gone, and what is given beyond the end is not counted."""
    bury(store, "a")
    letters = {0: Letter(b"a", "away"), 1: Letter(b"b", "away"), 2: to_queue(b"c")}
    assert store.part(LetterStore).replay("dead", "dead", letters) == [0]
    assert store.part(LetterStore).replay("dead", "dead", {0: Letter(b"", "away")}) == []
    assert store.part(LetterStore).replay("dead", "dead", {}) == []
    assert contents(store.client) == {}


def test_a_letter_may_go_to_the_queue_it_lies_in(store: DelayStore) -> None:
    """A dead letter queue may itself be the queue to which a letter goes."""
    bury(store, "a", "b", key="q")
    assert store.part(LetterStore).replay("q", "q", {0: to_queue(b"a")}) == [0]
    assert popped(store.client, "q") == [b"b", b"new a"]


def test_letters_of_any_bytes(store: DelayStore) -> None:
    """Letters of any bytes and any length, also words that the script uses, are compared and moved as they are."""
    messages = [b"", b"replay", b"drop", b"0", b"\xff\x00\r\n", bytes(range(256)), b"x" * 1_000_000]
    bury(store, *messages)
    letters = {older: Letter(message, "queue", "q", 0, message) for older, message in enumerate(messages)}
    assert store.part(LetterStore).replay("dead", "dead", letters) == [*range(len(messages))]
    assert popped(store.client, "q") == messages


@pytest.mark.parametrize("key", ["dead", "q", "{q}\x06\x163"])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and no letter moves."""
    bury(store, "a", "b", "b")
    letters = {0: Letter(b"a", "away"), 1: to_queue(b"b", "q", 3), 2: to_queue(b"b")}
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.part(LetterStore).replay("dead", "dead", letters))
