"""``begin_epoch.lua``: writes the marker of a journal for a new epoch."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents
from tests.support.store.promoting import JOURNAL_ID, elected


def test_an_empty_redis_gets_a_marker(store: DelayStore) -> None:
    """The marker has what the journal says, and a token not below Redis's time."""
    before_ms = int(store.now_ms())
    election = store.promotion.begin_epoch(JOURNAL_ID, 3, 9)
    assert election.word == "elected"
    assert election.token >= before_ms
    assert store.promotion.marker() == (JOURNAL_ID, election.token, 3, 9)


def test_a_marker_that_was_seen_is_replaced(store: DelayStore) -> None:
    """After a loss the marker of an older state makes place, with a higher token."""
    token = elected(store)
    election = store.promotion.begin_epoch(JOURNAL_ID, 2, 40, seen_token=token)
    assert election.token > token
    assert store.promotion.marker() == (JOURNAL_ID, election.token, 2, 40)


@pytest.mark.parametrize("seen", [0, 7])
def test_a_marker_that_nobody_saw_is_left_alone(store: DelayStore, seen: int) -> None:
    """Of two that notice a loss, the second finds the marker of the first, and begins no epoch."""
    elected(store)
    before = contents(store.client)
    assert store.promotion.begin_epoch(JOURNAL_ID, 2, 40, seen_token=seen).word == "superseded"
    assert contents(store.client) == before
