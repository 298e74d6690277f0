"""Promoters and callers that cancel, at once, over one guard."""

import random
from collections.abc import Callable

from kombu_delayq.store import DelayStore
from kombu_delayq.store.promotion import ALL
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row, several_rows
from tests.support.store.together import together


def test_a_row_is_claimed_or_promoted_and_never_both(store: DelayStore) -> None:
    """Promoters and claims race for the same rows: each row has one outcome, and all agree on it."""
    token, rows = elected(store), several_rows(400)

    def promote(store: DelayStore) -> dict[int, str]:
        words: dict[int, str] = {}
        for at in range(0, len(rows), 7):
            words |= store.promotion.promote(JOURNAL_ID, token, rows[at : at + 7]).words
        return words

    def claim(store: DelayStore) -> dict[int, str]:
        words: dict[int, str] = {}
        for one in random.sample(rows, 200):
            words |= store.promotion.claim_rows([one])
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


def test_an_earlier_promoter_is_cut_off_in_the_middle_of_its_round(make_store: MakeStore) -> None:
    """Once another was elected, the rest of a round is refused, and the successor promotes each row once."""
    old, new = make_store(), make_store()
    token, rows = elected(old), several_rows(10)
    assert old.promotion.promote(JOURNAL_ID, token, rows[:4]).word == "promoted"
    successor = elected(new)
    assert old.promotion.promote(JOURNAL_ID, token, rows[4:]).word == "superseded"
    assert old.promotion.journal_heartbeat(JOURNAL_ID, token, 5, [ALL], {})[ALL].word == "superseded"
    assert sorted(new.promotion.pushed(["q"])) == [1, 2, 3, 4]
    words = new.promotion.promote(JOURNAL_ID, successor, rows).words
    assert list(words.values()) == ["pushed"] * 4 + ["promoted"] * 6
    assert new.queues.size("q") == 10


def test_old_entries_leave_the_guard(store: DelayStore) -> None:
    """Claimed and pushed rows leave once they are older than the caller says, each kind by its own time."""
    token = elected(store)
    store.promotion.promote(JOURNAL_ID, token, several_rows(3))
    store.promotion.claim_rows(numbers(*range(10, 15)))
    assert store.promotion.prune(0, 0, ["q"]) == 0
    later_ms = store.now_ms() + 1
    assert store.promotion.prune(later_ms, 0, ["q"]) == 5
    assert sorted(store.promotion.pushed(["q"])) == [1, 2, 3]
    assert store.promotion.prune(0, later_ms, ["q"]) == 3
    assert not store.client.exists(GUARD)


def test_a_pruned_claim_does_not_bring_back_what_a_later_round_reads(store: DelayStore) -> None:
    """Claims that are younger than the given time stay, so that a round which is under way meets them."""
    token = elected(store)
    begun_ms = store.now_ms()
    store.promotion.claim_rows(numbers(1))
    assert store.promotion.prune(begun_ms - 1, begun_ms - 1, ["q"]) == 0
    assert store.promotion.promote(JOURNAL_ID, token, [row(1)]).words == {1: "claimed"}


def test_promotion_goes_on_while_publishers_publish(store: DelayStore) -> None:
    """Rows that come while others publish to the same queue: each is there once, in the order of due times."""
    token = elected(store)

    def promoter(first: int) -> Callable[[DelayStore], None]:
        def run(store: DelayStore) -> None:
            for seq in range(first, first + 60, 3):
                store.promotion.promote(JOURNAL_ID, token, [row(seq + n, due_ms=FUTURE_MS) for n in range(3)])

        return run

    together(store, promoter(1), promoter(31), promoter(61))
    messages = store.scan.browse("q", count=1000).messages
    assert sorted(message.id for message in messages) == sorted(f"i{seq}" for seq in range(1, 121))
    assert sorted(store.promotion.pushed(["q"])) == list(range(1, 121))
