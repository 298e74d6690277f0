"""``settle_rows.lua``: takes rows that the journal has marked out of the guard."""

from celery_ext.journal.promotion import Promotion
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import look
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row


def test_a_row_that_left_the_guard_may_come_again(store: DelayStore) -> None:
    """A settled row is new to the guard, and equal bytes that still wait are stored once."""
    token = elected(store)
    store.part(Promotion).promote(JOURNAL_ID, token, [row(1)])
    store.part(Promotion).settle_rows(JOURNAL_ID, token, numbers(1))
    assert not store.client.exists(GUARD)
    assert store.part(Promotion).promote(JOURNAL_ID, token, [row(1)]).words == {1: "promoted"}
    assert len(look(store)[b"waiting in q"]) == 1


def test_a_promoter_that_leads_no_more_leaves_its_rows(store: DelayStore) -> None:
    """The next one may have read them before they were marked, and finds them in the guard."""
    old = elected(store)
    store.part(Promotion).promote(JOURNAL_ID, old, [row(1)])
    new = elected(store)
    store.part(Promotion).settle_rows(JOURNAL_ID, old, numbers(1))
    assert store.part(Promotion).promote(JOURNAL_ID, new, [row(1)]).words == {1: "pushed"}
