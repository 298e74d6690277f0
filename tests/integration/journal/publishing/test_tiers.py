"""Each message that comes into the store is where it belongs, once."""

from time import time
from typing import Any

import pytest

from celery_ext.journal import JournaledStore, placement
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.types import Offer, PageId
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, body_of, delivered, in_redis, offer

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


def near(identity: str = "near") -> Offer:
    return offer(identity, time() * 1000 + HOUR_MS)


def far(identity: str = "far") -> Offer:
    return offer(identity, time() * 1000 + 40 * DAY_MS)


def rows(store: JournaledStore, *ids: str, state: int | None = None) -> list[tuple[str, bool]]:
    """Returns the rows of ids: the id, and whether only the journal has the message."""
    return [(row.id, row.state == 0) for row in store.journal.get(ids, state)]


@pytest.mark.parametrize("way", ["offer", "put"])
def test_a_page_is_divided(make_journaled: MakeJournaled, way: str) -> None:
    """Of one page, what is due late goes to the journal and the rest to Redis; repeated, it changes nothing."""
    store = make_journaled()
    page = [near(), far(), offer("later", time() * 1000 + 50 * DAY_MS)]
    for _ in range(2):
        if way == "offer":
            store.delivery.offer("q", *page, expire_ms=60_000)
        else:
            store.delivery.put("q", PageId("sender", 1), page, expire_ms=60_000)
        assert in_redis(store) == ["near"]
        assert rows(store, "near", "far", "later") == [("far", True), ("later", True)]
    assert [row.expire_ms for row in store.journal.get(["far"])] == [60_000]


def test_what_was_stored_is_counted_over_both(make_journaled: MakeJournaled) -> None:
    """The counts of an offer are of Redis and of the journal together."""
    store = make_journaled()
    page = [near(), far()]
    assert store.delivery.offer("q", *page)[1:] == (2, 0, 0)
    assert store.delivery.offer("q", *page, far("other"))[1:] == (1, 2, 0)


def test_a_journal_of_all_has_a_row_of_each_delayed_message(journaled_store: JournaledStore) -> None:
    """With journal='all' a message that waits in Redis has a row, too; one that is due at once has none."""
    page = [near(), far(), Offer("now", "", 0, body_of("now"))]
    journaled_store.delivery.put("q", PageId("sender", 1), page)
    assert rows(journaled_store, "near", "far", "now") == [("near", False), ("far", True)]


def test_due_times_may_be_relative(make_journaled: MakeJournaled) -> None:
    """A due time that counts from the arrival counts by Redis's clock in the journal as well."""
    store = make_journaled()
    now_ms = store.now_ms()
    store.delivery.offer(
        "q", Offer("far", f"+{2 * DAY_MS}", 0, body_of("far")), Offer("near", "+5000", 0, body_of("n"))
    )
    [row] = store.journal.get(["far"])
    assert 0 <= row.due_ms - now_ms - 2 * DAY_MS < 60_000
    assert in_redis(store) == ["near"]


def test_duplicates_are_kept_in_each_tier(make_journaled: MakeJournaled) -> None:
    """Two tasks with one custom id wait both, in the journal, in Redis, and across."""
    store = make_journaled()
    for due_ms in (time() * 1000 + HOUR_MS, time() * 1000 + 40 * DAY_MS):
        for body in (b'{"a": 1}', b'{"a": 2}'):
            store.delivery.offer(
                "q", Offer("duplicate", repr(due_ms), 0, body + (b" " if due_ms > time() * 1000 + DAY_MS else b""))
            )
    assert len(rows(store, "duplicate")) == 2
    assert len(in_redis(store)) == 2
    assert len(store.lookup.get(["q"], ["duplicate"])["duplicate"]) == 4


@pytest.mark.parametrize("step_s", [7200, -7200])
@pytest.mark.parametrize("way", ["offer", "put"])
def test_a_second_attempt_goes_where_the_first_went(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, way: str, step_s: float
) -> None:
    """A reply is lost, and the clock is set before the next attempt: the message is in one tier, not in two."""
    store = make_journaled(journal_horizon=3600)
    is_far = step_s > 0
    one = offer("i", time() * 1000 + HOUR_MS + (1 if is_far else -1) * HOUR_MS / 2)
    page = PageId(f"sender {way} {step_s} {store.journal.id}", 1)

    def publish() -> None:
        if way == "offer":
            store.delivery.offer("q", one)
        else:
            store.delivery.put("q", page, [one])

    def losing(*args: Any, **keywords: Any) -> Any:
        real(*args, **keywords)
        raise ConnectionError("the reply is lost")

    part, name = (store.journal, "add") if is_far else (Delivery, way)
    real = getattr(part, name)
    with monkeypatch.context() as patch:
        patch.setattr(part, name, losing)
        with pytest.raises(ConnectionError, match="reply"):
            publish()
    monkeypatch.setattr(placement, "time", lambda: time() + step_s)
    publish()
    assert [*in_redis(store), *(row.id for row in store.journal.get(["i"]))] == ["i"]
    assert bool(store.journal.get(["i"])) is is_far


def test_what_came_to_both_tiers_is_delivered_once(make_journaled: MakeJournaled) -> None:
    """A publisher died after its first attempt and another process repeats it, with other clocks: it is one message."""
    store = make_journaled(journal_lead=7200)
    same = offer("both", time() * 1000 + HOUR_MS)
    make_journaled(journal_horizon=1).delivery.offer("q", same)
    make_journaled(journal_horizon=DAY_MS).delivery.offer("q", same)
    assert (in_redis(store), rows(store, "both")) == (["both"], [("both", True)])
    assert len(store.lookup.get(["q"], ["both"])["both"]) == 1
    Promoter(store).promote()
    assert rows(store, "both") == [("both", False)]
    assert in_redis(store) == ["both"]
    store.client.zadd("delayq:{q}:due", {b"both": 1.0})  # it is due
    assert delivered(store) == ["both"]
