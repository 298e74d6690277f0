"""``hold_rows.lua``: rows that a caller is about to bring are noted."""

from kombu_delayq.store import DelayStore
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row


def test_a_free_row_is_held(store: DelayStore) -> None:
    """The note has the time and the name of the latest hold."""
    elected(store)
    before_ms = store.now_ms()
    for hold in ("one", "two"):
        assert store.promotion.hold_rows(numbers(1), hold) == {1: "held"}
    since_ms, _, hold = store.client.hget(GUARD, "1")[1:].decode().partition(":")
    assert before_ms - 1 <= float(since_ms) <= store.now_ms()
    assert hold == "two"


def test_rows_that_were_pushed_or_claimed_stay_so(store: DelayStore) -> None:
    """What is decided already is said, and nothing changes."""
    store.promotion.promote(JOURNAL_ID, elected(store), [row(1)])
    store.promotion.claim_rows(numbers(2))
    before = store.client.hgetall(GUARD)
    assert store.promotion.hold_rows(numbers(1, 2), "mine") == {1: "pushed", 2: "claimed"}
    assert store.client.hgetall(GUARD) == before


def test_a_hold_that_is_left_is_pruned(store: DelayStore) -> None:
    """Of a caller that died, the guard keeps its holds as long as claims."""
    elected(store)
    store.promotion.hold_rows(numbers(1), "mine")
    later_ms = store.now_ms() + 1000
    assert store.promotion.prune(0.0, later_ms, ["q"]) == 0
    assert store.promotion.prune(later_ms, 0.0, ["q"]) == 1
    assert not store.client.exists(GUARD)
