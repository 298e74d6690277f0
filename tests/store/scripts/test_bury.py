"""``bury.lua``: moves messages that are too late to a queue of dead letters."""

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.options import QueueLimits
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import DelayedQueue, TooLate
from tests.support.store.keyspace import PAST_MS, contents, lose_body, popped, refuses_a_key_of_the_wrong_type, waiting


def too_late(store: DelayStore) -> tuple[TooLate, ...]:
    """Returns the messages that are too late."""
    return store.delivery.transfer_limited("q", QueueLimits("dead-letter", 60_000, None, 1)).too_late


def bury(store: DelayStore, messages: tuple[TooLate, ...]) -> tuple[int, int]:
    """Buries messages, each with a letter that names its body."""
    letters = [(late, b"letter of " + late.body if late.body is not None else b"") for late in messages]
    return store.delivery.bury(DelayedQueue("q", store.layout), letters, "dead")


def test_a_message_becomes_a_dead_letter(store: DelayStore) -> None:
    """Each message leaves the store, its duplicates too, and its letter is in the list of its priority."""
    store.delivery.offer(
        "q", waiting("a", PAST_MS), waiting("b", PAST_MS, priority=9), waiting("a", PAST_MS + 5, "duplicate")
    )
    store.delivery.offer("q", waiting("later"))
    assert bury(store, too_late(store)) == (3, 0)
    assert popped(store.client, "dead") == [b"letter of body of a", b"letter of duplicate"]
    assert store.client.lrange(store.keys.ready("dead", (0, 3, 6, 9))[3], 0, -1) == [b"letter of body of b"]
    assert [message.id for message in by_id.browse(store, "q")] == ["later"]
    assert store.client.hget(store.keys.counts("q"), "overdue_dead_lettered") == b"3"
    assert store.queues.of_letters() == ["dead"]


def test_a_message_that_changed_is_left_alone(store: DelayStore) -> None:
    """A message that was cancelled, or that waits with another body, is not buried, and no letter is made."""
    store.delivery.offer("q", waiting("gone", PAST_MS), waiting("changed", PAST_MS + 1))
    found = too_late(store)
    store.lookup.cancel(["q"], ["gone", "changed"])
    store.delivery.offer("q", waiting("changed", PAST_MS + 1, "another body"))
    before = {key: value for key, value in contents(store.client).items() if key != b"{delayq}:dead_letters"}
    assert bury(store, found) == (0, 0)
    assert {key: value for key, value in contents(store.client).items() if key != b"{delayq}:dead_letters"} == before


def test_burying_again_changes_nothing(store: DelayStore) -> None:
    """After a lost reply the same call comes again: each message has one letter."""
    store.delivery.offer("q", waiting("a", PAST_MS))
    found = too_late(store)
    assert [bury(store, found), bury(store, found)] == [(1, 0), (0, 0)]
    assert store.client.llen("dead") == 1


def test_a_lost_message_leaves_without_a_letter(store: DelayStore) -> None:
    """A message without a body does not stand in the way for ever; it is counted as lost."""
    store.delivery.offer("q", waiting("lost", PAST_MS), waiting("b", PAST_MS + 1))
    lose_body(store, "lost")
    assert bury(store, too_late(store)) == (1, 1)
    assert too_late(store) == ()
    assert store.figures.counts(["q"])["q"].lost == 1
    assert store.client.llen("dead") == 1


def test_a_key_of_the_wrong_type_is_refused(store: DelayStore) -> None:
    """A list of dead letters that is none stops it before anything has changed."""
    store.delivery.offer("q", waiting("a", PAST_MS))
    found = too_late(store)
    store.client.sadd("{delayq}:dead_letters", "dead")
    refuses_a_key_of_the_wrong_type(store, "dead", lambda: bury(store, found))


def test_a_letter_is_taken_back_also_where_redis_refuses_to_count(
    store: DelayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without the right to count dead letters doubles none: the letter of a changed message leaves again."""
    store.delivery.offer("q", waiting("a", PAST_MS), waiting("gone", PAST_MS + 1))
    found = too_late(store)
    store.lookup.cancel(["q"], ["gone"])
    monkeypatch.setattr(
        "kombu_delayq.store.client.StoreClient.count_dead", lambda *_: ("EVAL", "return redis.call('NO')", 0)
    )
    assert bury(store, found) == (1, 0)
    assert store.client.lrange("dead", 0, -1) == [b"letter of body of a"]
