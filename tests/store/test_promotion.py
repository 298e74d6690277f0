"""Promoters and callers that cancel, at once, over one guard."""

from celery_ext.journal.promotion import Promotion
from kombu_delayq.store import DelayStore
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row, several_rows


def test_old_entries_leave_the_guard(store: DelayStore) -> None:
    """Claimed and pushed rows leave once they are older than the caller says, each kind by its own time."""
    token = elected(store)
    store.part(Promotion).promote(JOURNAL_ID, token, several_rows(3))
    store.part(Promotion).claim_rows(numbers(*range(10, 15)))
    assert store.part(Promotion).prune(0, 0, ["q"]) == 0
    later_ms = store.now_ms() + 1
    assert store.part(Promotion).prune(later_ms, 0, ["q"]) == 5
    assert sorted(store.part(Promotion).pushed(["q"])) == [1, 2, 3]
    assert store.part(Promotion).prune(0, later_ms, ["q"]) == 3
    assert not store.client.exists(GUARD)


def test_a_pruned_claim_does_not_bring_back_what_a_later_round_reads(store: DelayStore) -> None:
    """Claims that are younger than the given time stay, so that a round which is under way meets them."""
    token = elected(store)
    begun_ms = store.now_ms()
    store.part(Promotion).claim_rows(numbers(1))
    assert store.part(Promotion).prune(begun_ms - 1, begun_ms - 1, ["q"]) == 0
    assert store.part(Promotion).promote(JOURNAL_ID, token, [row(1)]).words == {1: "claimed"}
