"""Promotion: rows come to Redis before they are due, each once."""

from collections.abc import Collection
from time import time

import pytest

from celery_ext.journal import placement, worker
from celery_ext.journal.lookup import promote_early
from celery_ext.journal.promotion import Row
from celery_ext.journal.recovery import trim
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, addition, delivered, in_redis, offer
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


def test_what_is_due_within_the_lead_comes_to_redis(make_journaled: MakeJournaled) -> None:
    """Rows that are due soon, or were due already, come to Redis in the order of due times; others stay."""
    store = make_journaled()
    now_ms = clock_ms(store.client)
    far = [("later", 2 * HOUR_MS), ("soon", 60_000.0), ("late", -DAY_MS), ("near", 0.4 * HOUR_MS)]
    store.journal.add([addition(name, now_ms + ms) for name, ms in far])
    promoter = Promoter(store).heartbeat()
    assert promoter.promote() == {"promoted": 3}
    assert in_redis(store) == ["late", "soon", "near"]
    assert delivered(store) == ["late"]
    assert [row.id for row in store.journal.get(["later", "soon", "late", "near"])] == ["later"]
    assert store.promotion.pushed(["q"]) == []
    assert promoter.promote() == {}


def test_pages_follow_each_other(make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows go page by page, also many of one due time; none is left out and none comes twice."""
    monkeypatch.setattr(worker, "PAGE", 7)
    store = make_journaled()
    due_ms = clock_ms(store.client) + 60_000
    store.journal.add([addition(f"i{n:02}", due_ms + n // 20, f"q{n % 3}") for n in range(60)])
    assert Promoter(store).heartbeat().promote()["promoted"] == 60
    for queue in range(3):
        assert in_redis(store, f"q{queue}") == [f"i{n:02}" for n in range(60) if n % 3 == queue]


def test_a_page_of_large_rows_has_few_of_them(make_journaled: MakeJournaled) -> None:
    """Rows are read by about 8 MB at once, however many are due; a larger one comes by itself."""
    store = make_journaled()
    due_ms, sizes = clock_ms(store.client) + 60_000, [3, 3, 3, 3, 9, 1, 1]
    for n, size in enumerate(sizes):
        store.journal.add([addition(f"i{n}", due_ms + n)._replace(body=b"%d" % n * size * 1_000_000)])
    read, promotable = list[list[str]](), store.journal.promotable

    def noted(*args: object) -> list[Row]:
        found = promotable(*args)  # type: ignore[arg-type]
        read.append([row.id for row in found])
        return found

    store.journal.promotable = noted  # type: ignore[method-assign,assignment]
    assert Promoter(store).heartbeat().promote()["promoted"] == len(sizes)
    assert read == [["i0", "i1", "i2"], ["i3", "i4"], ["i5", "i6"], []]
    assert store.redis_alone.queues.size("q") == len(sizes)


def test_a_row_that_was_claimed_during_a_promotion_stays_away(make_journaled: MakeJournaled) -> None:
    """A caller that takes a row out after the promoter has read it wins, and after the push Redis decides."""
    store = make_journaled()
    due_ms = clock_ms(store.client) + 60_000
    store.journal.add([addition(name, due_ms) for name in "abc"])
    promoter, claims = Promoter(store).heartbeat(), {}
    promotable = store.journal.promotable

    def cancelled_meanwhile(*args: object) -> object:
        found = promotable(*args)  # type: ignore[arg-type]
        gone = store.journal.delete(["b"])
        claims.update(store.promotion.claim_rows(gone))
        return found

    store.journal.promotable = cancelled_meanwhile  # type: ignore[method-assign,assignment]
    assert promoter.promote() == {"promoted": 2, "claimed": 1}
    assert set(claims.values()) == {"claimed"}
    assert in_redis(store) == ["a", "c"]


def test_a_row_that_was_deleted_after_its_push_stays_in_the_guard(make_journaled: MakeJournaled) -> None:
    """Whoever deletes a row between push and mark learns from the guard that it was pushed."""
    store = make_journaled()
    store.journal.add([addition("a", clock_ms(store.client) + 60_000)])
    promoter, mark = Promoter(store).heartbeat(), store.journal.mark
    [row] = store.journal.get(["a"])

    def deleted_before(*args: object) -> object:
        store.journal.delete(["a"])
        return mark(*args)  # type: ignore[arg-type]

    store.journal.mark = deleted_before  # type: ignore[method-assign,assignment]
    assert promoter.promote()["promoted"] == 1
    assert store.promotion.claim_rows([row]) == {row.seq: "pushed"}
    assert in_redis(store) == ["a"]


def test_a_queue_that_redis_refuses_holds_up_no_other(make_journaled: MakeJournaled) -> None:
    """With somebody else's key in the place of a queue, its rows stay in the journal, and the others come."""
    store = make_journaled()
    due_ms = clock_ms(store.client) + 60_000
    store.client.set("delayq:{q}:due", "somebody else's")
    store.journal.add([addition("a", due_ms), addition("b", due_ms, "p")])
    promoter = Promoter(store)
    assert promoter.promote()["promoted"] == 1
    assert in_redis(store, "p") == ["b"]
    store.client.delete("delayq:{q}:due")
    assert promoter.promote()["promoted"] == 1
    assert in_redis(store) == ["a"]


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, -2 * DAY_MS])
def test_a_wrong_clock_of_a_publisher_loses_nothing(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, ahead_ms: float
) -> None:
    """With a clock two days off, messages wait in the wrong place, and are delivered when Redis says so."""
    monkeypatch.setattr(placement, "time", lambda: time() + ahead_ms / 1000)
    store = make_journaled()
    now_ms = clock_ms(store.client)
    dues = {
        "past": now_ms - 10,
        "near": now_ms + HOUR_MS / 4,
        "far": now_ms + 1.5 * DAY_MS,
        "month": now_ms + 30 * DAY_MS,
    }
    store.delivery.offer("q", *(offer(name, due_ms) for name, due_ms in dues.items()))
    promoter = Promoter(store).heartbeat()
    promoter.promote()
    assert delivered(store) == ["past"]
    assert set(dues) == {"past", *in_redis(store), *(row.id for row in store.journal.get(list(dues)))}
    assert "near" in in_redis(store)
    assert [row.id for row in store.journal.get(["month"])] == ["month"]


def test_rows_of_messages_that_left_are_trimmed(make_journaled: MakeJournaled) -> None:
    """Rows leave once their messages have left Redis for as long as the retention; others stay."""
    store = make_journaled(journal="all", journal_retention=3600)
    now_ms = clock_ms(store.client)
    dues = {"long ago": now_ms - 2 * HOUR_MS, "lately": now_ms - HOUR_MS / 2, "soon": now_ms + HOUR_MS / 3}
    store.journal.add([addition(name, due_ms) for name, due_ms in dues.items()])
    promoter = Promoter(store).heartbeat()
    promoter.promote()
    promoter.heartbeat()
    assert list(trim(store)) == []  # it waits in Redis still
    assert delivered(store) == ["long ago", "lately"]
    promoter.heartbeat()
    assert list(trim(store)) == [1]
    assert {row.id for row in store.journal.get(list(dues), None)} == {"lately", "soon"}


def test_a_claim_outlives_promotions_for_who_promotes_a_single_row(make_journaled: MakeJournaled) -> None:
    """A caller may have read a row to run it now, and another cancels it: no promotion in between changes that."""
    store = make_journaled()
    store.journal.add([addition("far", clock_ms(store.client) + DAY_MS)])
    promoter = Promoter(store).heartbeat()
    [read] = store.journal.get(["far"])
    assert store.lookup.cancel([read.queue], ["far"])["far"]
    promoter.promote()
    assert promote_early(store.journal, store.promotion, [read]) == set()
    assert in_redis(store) == []


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_row_that_was_promoted_is_promoted_no_more(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A message does not come back that was promoted and cancelled since the caller read its row."""
    store = make_journaled()
    promoter = Promoter(make_journaled()).heartbeat()
    promoter.leadership.enter("q")
    store.journal.add([addition("soon", clock_ms(store.client) + HOUR_MS / 4)])
    [read] = store.journal.get(["soon"])
    real, steps = store.journal.rows, [promoter.promote, lambda: promoter.store.lookup.cancel(["q"], ["soon"])]

    def rows(seqs: Collection[int]) -> list[Row]:
        found = real(seqs)
        while steps:
            assert steps.pop(0)()
        return found

    if when == "before":
        rows([])
    monkeypatch.setattr(store.journal, "rows", rows)
    assert promote_early(store.journal, store.promotion, [read]) == set()
    assert steps == in_redis(store) == []
