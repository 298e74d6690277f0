"""Promoters and callers that cancel, at once, over one guard."""

import random

from celery_ext.journal.promotion import Promotion
from kombu_delayq.store import DelayStore
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row, several_rows
from tests.support.store.together import together


def test_a_row_is_claimed_or_promoted_and_never_both(store: DelayStore) -> None:
    """Promoters and claims race for the same rows: each row has one outcome, and all agree on it."""
    token, rows = elected(store), several_rows(400)

    def promote(store: DelayStore) -> dict[int, str]:
        words: dict[int, str] = {}
        for at in range(0, len(rows), 7):
            words |= store.part(Promotion).promote(JOURNAL_ID, token, rows[at : at + 7]).words
        return words

    def claim(store: DelayStore) -> dict[int, str]:
        words: dict[int, str] = {}
        for one in random.sample(rows, 200):
            words |= store.part(Promotion).claim_rows([one])
        return words

    first, second, claimed, claimed_too = together(store, promote, promote, claim, claim)
    for seq in first:
        both = {first[seq], second[seq]}
        assert both in ({"promoted", "pushed"}, {"claimed"})
        for claims in (claimed, claimed_too):
            assert claims.get(seq) in (None, "claimed" if both == {"claimed"} else "pushed")
    assert {"promoted"} < {*first.values(), *second.values()}
    waiting = {message.id for message in store.scan.browse("q", count=1000).messages}
    assert waiting == {f"i{seq}" for seq in first if first[seq] != "claimed"}


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
