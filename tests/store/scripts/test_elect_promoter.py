"""``elect_promoter.lua``: elects a promoter."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.promotion import Election
from tests.support.store.keyspace import contents
from tests.support.store.promoting import JOURNAL_ID, MARKER, elected


def test_a_term_is_higher_than_those_before(store: DelayStore) -> None:
    """Each promoter that is elected gets a higher token, at least Redis's time, and nothing else changes."""
    first = elected(store)
    before_ms = store.now_ms()
    election = store.promotion.elect_promoter(JOURNAL_ID, 1, 5)
    assert election.word == "elected"
    assert election.token > first
    assert before_ms <= election.now_ms <= store.now_ms()
    again = store.promotion.elect_promoter(JOURNAL_ID, 1, 5)
    assert again.token > election.token
    marker = store.promotion.marker()
    assert marker == (JOURNAL_ID, again.token, 1, 5)


def test_a_clock_that_was_set_back_raises_the_term_all_the_same(store: DelayStore) -> None:
    """A token that lies ahead of Redis's clock is followed by the next number."""
    elected(store)
    store.client.hset(MARKER, "token", "99999999999999")
    assert store.promotion.elect_promoter(JOURNAL_ID, 1, 5).token == 100_000_000_000_000


@pytest.mark.parametrize(
    ("id_", "epoch", "heartbeat", "word"),
    [
        ("another", 1, 5, "other"),
        (JOURNAL_ID, 2, 5, "behind"),
        (JOURNAL_ID, 1, 7, "behind"),
        (JOURNAL_ID, 1, 4, "ahead"),
        (JOURNAL_ID, 0, 5, "ahead"),
    ],
)
def test_a_marker_that_does_not_agree_is_left_alone(
    store: DelayStore, id_: str, epoch: int, heartbeat: int, word: str
) -> None:
    """Of another journal, or when one of both was set back, the caller learns what the marker says."""
    token = elected(store, epoch=1, heartbeat=5)
    before = contents(store.client)
    assert store.promotion.elect_promoter(id_, epoch, heartbeat) == Election(word, token, 0.0, 1, 5)
    assert contents(store.client) == before


def test_a_marker_may_be_one_beat_behind(store: DelayStore) -> None:
    """A promoter that died between the journal's heartbeat and that of the marker is no loss."""
    elected(store, heartbeat=5)
    assert store.promotion.elect_promoter(JOURNAL_ID, 1, 6).word == "elected"


def test_an_empty_redis_is_lost(store: DelayStore) -> None:
    """Without a marker nobody is elected."""
    assert store.promotion.elect_promoter(JOURNAL_ID, 1, 0) == Election("lost")
    assert contents(store.client) == {}
