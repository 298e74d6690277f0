"""``replay.lua``: takes dead letters from the end of their list, to a queue, back, or away."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.dead_letters import Letter
from tests.support.store.keyspace import contents, popped, refuses_a_key_of_the_wrong_type


def bury(store: DelayStore, *messages: str | bytes, key: str = "dead") -> None:
    """Publishes dead letters, the oldest first."""
    store.client.lpush(key, *messages)


def to_queue(message: bytes, queue: str = "q", priority: int = 0) -> Letter:
    return Letter(message, "queue", queue, priority, b"new " + message)


def test_the_oldest_dead_letters_go_where_each_is_sent(store: DelayStore) -> None:
    """Each goes to its queue with its new body, away, or to the other end of its list; the others stay as they are."""
    bury(store, "a", "b", "c", "d", "e")
    store.client.lpush("q", "ready before")
    letters = [to_queue(b"a"), Letter(b"b", "away"), Letter(b"c", "back"), to_queue(b"d")]
    assert store.letters.replay("dead", "dead", letters) == 4
    assert contents(store.client) == {b"dead": [b"c", b"e"], b"q": [b"new d", b"new a", b"ready before"]}


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
    assert store.letters.replay("dead", "dead", letters) == 5
    assert contents(store.client) == {
        b"dead": [b"f"],
        b"q": [b"new c"],
        b"{q}\x06\x163": [b"new d", b"new a"],
        b"{other}\x06\x169": [b"new e", b"new b"],
    }


def test_a_list_that_goes_round_comes_to_its_beginning(store: DelayStore) -> None:
    """When all letters are put back, the list is as before; equal ones are taken one by one."""
    bury(store, "a", "b", "b", "c")
    before = contents(store.client)
    assert store.letters.replay("dead", "dead", [Letter(message, "back") for message in (b"a", b"b", b"b", b"c")]) == 4
    assert contents(store.client) == before
    assert store.letters.replay("dead", "dead", [Letter(b"a", "back"), Letter(b"b", "away"), to_queue(b"b")]) == 3
    assert contents(store.client) == {b"dead": [b"a", b"c"], b"q": [b"new b"]}


@pytest.mark.parametrize("at", [0, 1, 2])
def test_it_stops_where_the_list_is_not_as_it_was_read(store: DelayStore, at: int) -> None:
    """From the first letter on that another has taken meanwhile nothing is done, and the number done is returned."""
    bury(store, "a", "b", "c", "d")
    letters = [to_queue(message) for message in (b"a", b"b", b"c")]
    letters[at] = letters[at]._replace(message=b"taken meanwhile")
    assert store.letters.replay("dead", "dead", letters) == at
    assert popped(store.client, "q") == [b"new a", b"new b", b"new c"][:at]
    assert popped(store.client, "dead") == [b"a", b"b", b"c", b"d"][at:]


def test_the_last_letter_takes_the_list_with_it(store: DelayStore) -> None:
    """When all letters have left, the key is gone, and what is given beyond the end is not counted."""
    bury(store, "a")
    assert store.letters.replay("dead", "dead", [Letter(b"a", "away"), Letter(b"a", "away"), to_queue(b"a")]) == 1
    assert store.letters.replay("dead", "dead", [Letter(b"", "back")]) == 0
    assert store.letters.replay("dead", "dead", []) == 0
    assert contents(store.client) == {}


def test_a_letter_may_go_to_the_queue_it_lies_in(store: DelayStore) -> None:
    """A dead letter queue may itself be the queue to which a letter goes."""
    bury(store, "a", "b", key="q")
    assert store.letters.replay("q", "q", [to_queue(b"a")]) == 1
    assert popped(store.client, "q") == [b"b", b"new a"]


def test_letters_of_any_bytes(store: DelayStore) -> None:
    """Letters of any bytes and any length, also words that the script uses, are compared and moved as they are."""
    messages = [b"", b"back", b"away", b"0", b"\xff\x00\r\n", bytes(range(256)), b"x" * 1_000_000]
    bury(store, *messages)
    letters = [Letter(message, "queue", "q", 0, message) for message in messages]
    assert store.letters.replay("dead", "dead", letters) == len(messages)
    assert popped(store.client, "q") == messages


@pytest.mark.parametrize("key", ["dead", "q", "{q}\x06\x163"])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and no letter moves."""
    bury(store, "a", "b", "b")
    letters = [Letter(b"a", "away"), to_queue(b"b", "q", 3), to_queue(b"b")]
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.letters.replay("dead", "dead", letters))
