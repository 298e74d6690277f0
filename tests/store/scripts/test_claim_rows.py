"""``claim_rows.lua``: rows that were taken out of the journal are promoted no more, and others are held."""

from celery_ext.journal.promotion import Promotion
from kombu_delayq.store import DelayStore
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row


def test_a_free_row_is_claimed(store: DelayStore) -> None:
    """A row that no promoter has pushed is claimed, with the time, and stays claimed when the call is repeated."""
    elected(store)
    before_ms = store.now_ms()
    assert store.part(Promotion).claim_rows(numbers(1, 2)) == {1: "claimed", 2: "claimed"}
    notes = store.client.hgetall(GUARD)
    assert set(notes) == {b"1", b"2"}
    assert all(before_ms - 1 <= float(note[1:]) <= store.now_ms() for note in notes.values())
    assert store.part(Promotion).claim_rows(numbers(2, 3)) == {2: "claimed", 3: "claimed"}
    assert store.client.hget(GUARD, "2") == notes[b"2"]


def test_thousands_are_claimed_in_one_go(store: DelayStore) -> None:
    """As many rows as a bulk cancel has fit."""
    elected(store)
    assert set(store.part(Promotion).claim_rows(numbers(*range(2500))).values()) == {"claimed"}
    assert store.client.hlen(GUARD) == 2500


def test_a_claim_is_not_kept_where_nobody_promotes(store: DelayStore) -> None:
    """A queue at which nobody is leading keeps no claims, which nobody would ever take out of its guard."""
    assert store.part(Promotion).claim_rows(numbers(1, 2)) == {1: "claimed", 2: "claimed"}
    assert not store.client.exists(GUARD)


def test_no_rows_are_claimed_at_once(store: DelayStore) -> None:
    """No rows are no error, and need no Redis."""
    assert store.part(Promotion).claim_rows(numbers()) == {}


def test_a_free_row_is_held(store: DelayStore) -> None:
    """The note has the time and the name of the latest hold."""
    elected(store)
    before_ms = store.now_ms()
    for hold in ("one", "two"):
        assert store.part(Promotion).claim_rows(numbers(1), hold) == {1: "held"}
    since_ms, _, hold = store.client.hget(GUARD, "1")[1:].decode().partition(":")
    assert before_ms - 1 <= float(since_ms) <= store.now_ms()
    assert hold == "two"


def test_rows_that_were_pushed_or_claimed_stay_so(store: DelayStore) -> None:
    """For rows that are decided already the script returns the decision, and changes nothing."""
    store.part(Promotion).promote(JOURNAL_ID, elected(store), [row(1)])
    store.part(Promotion).claim_rows(numbers(2))
    before = store.client.hgetall(GUARD)
    assert store.part(Promotion).claim_rows(numbers(1, 2), "mine") == {1: "pushed", 2: "claimed"}
    assert store.client.hgetall(GUARD) == before


def test_a_hold_that_is_left_is_pruned(store: DelayStore) -> None:
    """Of a caller that died, the guard keeps its holds as long as claims."""
    elected(store)
    store.part(Promotion).claim_rows(numbers(1), "mine")
    later_ms = store.now_ms() + 1000
    assert store.part(Promotion).prune(0.0, later_ms, ["q"]) == 0
    assert store.part(Promotion).prune(later_ms, 0.0, ["q"]) == 1
    assert not store.client.exists(GUARD)
