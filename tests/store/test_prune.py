"""``DeadLetters.prune``: dead letters that are too old, or too many, are dropped."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from celery_ext.dead_letters.store import MOST_PRUNED, LetterStore
from kombu_delayq.message.letter_record import DEAD_LETTER
from kombu_delayq.store import DelayStore

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def letter(name: str, days: float) -> bytes:
    """Returns a dead letter that was buried so many days ago."""
    at = (NOW - timedelta(days=days)).isoformat()
    return json.dumps({"headers": {"id": name}, "properties": {DEAD_LETTER: {"at": at}}}).encode()


def bury(store: DelayStore, *letters: bytes, key: str = "dead") -> None:
    """Puts letters into the list, the oldest first."""
    store.client.lpush(key, *letters)


def left(store: DelayStore, key: str = "dead") -> list[str]:
    """Returns the names of the letters in a list, the oldest first."""
    return [json.loads(raw)["headers"]["id"] for raw in reversed(store.client.lrange(key, 0, -1))]


def ms_ago(days: float) -> float:
    return (NOW - timedelta(days=days)).timestamp() * 1000


def test_letters_that_are_too_old_are_dropped(store: DelayStore) -> None:
    """Those that were buried before the time leave every list; with no time none does."""
    bury(store, letter("a", 9), letter("b", 8), letter("c", 1))
    bury(store, letter("urgent", 9), letter("new", 2), key="{dead}\x06\x166")
    assert store.part(LetterStore).prune("dead", None, None) == 0
    assert store.part(LetterStore).prune("dead", ms_ago(3), None) == 3
    assert (left(store), left(store, "{dead}\x06\x166")) == (["c"], ["new"])
    assert store.part(LetterStore).prune("dead", ms_ago(3), None) == 0


def test_the_oldest_beyond_the_number_are_dropped(store: DelayStore) -> None:
    """Of all lists together so many stay; those of the most urgent priority stay longest, and equal ones one by one."""
    bury(store, letter("a", 3), letter("a", 3), letter("b", 2))
    bury(store, letter("c", 9), letter("d", 1), key="{dead}\x06\x169")
    assert store.part(LetterStore).prune("dead", None, 5) == 0
    assert store.part(LetterStore).prune("dead", None, 4) == 1
    assert (left(store), left(store, "{dead}\x06\x169")) == (["a", "a", "b"], ["d"])
    assert store.part(LetterStore).prune("dead", ms_ago(7), 2) == 2
    assert (left(store), left(store, "{dead}\x06\x169")) == (["a", "b"], [])


@pytest.mark.parametrize("other", [b"{}", b"no JSON", b'{"headers": {"id": "x"}, "properties": {"dead_letter": 1}}'])
def test_messages_that_are_no_dead_letters_stay(store: DelayStore, other: bytes) -> None:
    """They stay where they are, however many there are, and do not keep the letters behind them from being dropped."""
    bury(store, *[other] * 150, letter("a", 9), other, letter("b", 9), letter("c", 1))
    assert store.part(LetterStore).prune("dead", ms_ago(3), 1) == 3
    assert store.client.lrange("dead", 0, -1) == [other] * 151
    assert store.part(LetterStore).prune("dead", ms_ago(3), 1) == 0


def test_many_are_dropped_in_several_calls(store: DelayStore) -> None:
    """A call takes a bounded number of letters of a list, so that it keeps no transfer worker busy."""
    bury(store, *(letter(str(number), 9) for number in range(MOST_PRUNED + 50)))
    assert store.part(LetterStore).prune("dead", None, 10) == MOST_PRUNED
    assert store.part(LetterStore).prune("dead", None, 10) == 40
    assert left(store) == [str(number) for number in range(MOST_PRUNED + 40, MOST_PRUNED + 50)]


def test_a_replay_keeps_all(store: DelayStore) -> None:
    """While a caller replays nothing is dropped, and a pruning holds no later caller up."""
    bury(store, letter("a", 9))
    with store.part(LetterStore).replaying("dead"):
        assert store.part(LetterStore).prune("dead", ms_ago(3), None) == 0
    assert store.part(LetterStore).prune("dead", ms_ago(3), None) == 1
    assert store.client.keys("*") == []
