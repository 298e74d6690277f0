"""``send_away.lua``: a message leaves the store that waits in the journal by now."""

from collections.abc import Callable

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import FUTURE_MS, clock_ms, contents, only, refuses_a_key_of_the_wrong_type, waiting
from tests.support.store.promoting import GUARD, JOURNAL_ID, in_office, numbers, row

#: Ways to ask for the row.
ASKS: dict[str, Callable[[DelayStore, int], dict[int, str]]] = {
    "claim": lambda store, _: store.promotion.claim_rows(numbers(7)),
    "hold": lambda store, _: store.promotion.hold_rows(numbers(7), "mine"),
    "promotion": lambda store, term: store.promotion.promote(JOURNAL_ID, term, [row(7)]).words,
}


def offered(store: DelayStore) -> Waiting:
    """Offers a message, and notes that its row is about to wait. Returns it."""
    store.delivery.offer("q", waiting("i"))
    store.promotion.note_leaving("q", [7], clock_ms(store.client))
    return only(store, "i")


def test_a_message_leaves_and_its_row_is_free(store: DelayStore) -> None:
    """The message is gone from every key, and a claim decides over the row from then on."""
    message = offered(store)
    assert store.promotion.pushed_of(numbers(7)) == {7}
    assert store.promotion.send_away("q", 7, message) == "sent_away"
    assert not store.client.exists(*store.keys.stored("q", store.options.backup), GUARD)
    assert store.promotion.claim_rows(numbers(7)) == {7: "claimed"}


@pytest.mark.parametrize("ask", ASKS)
def test_a_message_stays_whose_row_somebody_has_asked_for(store: DelayStore, ask: str) -> None:
    """Who asks hears that the row was pushed, nothing is put into the store, and the message does not leave it."""
    term, message = in_office(store), offered(store)
    assert ASKS[ask](store, term) == {7: "pushed"}
    assert store.client.hget(GUARD, "7")[:1] == b"p"
    before = contents(store.client)
    assert store.promotion.send_away("q", 7, message) == "pushed"
    assert contents(store.client) == before
    assert only(store, "i") == message


def test_a_message_stays_whose_row_has_left_the_guard(store: DelayStore) -> None:
    """A promoter has marked the row, so that the message belongs into the store."""
    message = offered(store)
    store.promotion.settle_rows(numbers(7))
    assert store.promotion.send_away("q", 7, message) == "free"
    assert only(store, "i") == message


@pytest.mark.parametrize("word", ["changed", "not_delayed"])
def test_who_claims_the_row_later_hears_that_the_store_has_decided(store: DelayStore, word: str) -> None:
    """If the message was changed or taken, the row counts as pushed: of two callers only one has the message."""
    message = offered(store)
    if word == "changed":
        store.lookup.reschedule("q", [Change(message, FUTURE_MS + 1, b"new")])
    else:
        store.lookup.cancel(["q"], ["i"])
    assert store.promotion.send_away("q", 7, message) == word
    assert store.promotion.claim_rows(numbers(7)) == {7: "pushed"}
    assert store.queues.size("q") == (word == "changed")


def test_a_note_that_is_left_is_pruned(store: DelayStore) -> None:
    """Of a caller that died, the guard keeps its notes as long as those of pushed rows."""
    in_office(store)
    offered(store)
    later_ms = store.now_ms() + 1000
    assert store.promotion.prune(later_ms, 0.0, ["q"]) == 0
    assert store.promotion.prune(0.0, later_ms, ["q"]) == 1
    assert not store.client.exists(GUARD)


def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore) -> None:
    """Where somebody else's key is in the way, the error names it."""
    refuses_a_key_of_the_wrong_type(
        store,
        GUARD,
        lambda: store.promotion.send_away("q", 7, Waiting("q", "i", FUTURE_MS, 0, b"i", store.options.backup)),
    )
