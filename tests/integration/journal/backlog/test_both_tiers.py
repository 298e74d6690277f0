"""A caller and a promoter, or two callers, change one message at once: one outcome stands."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from celery_ext.journal import JournaledStore
from celery_ext.waiting import Bulk, BulkAction, Selection, Snapshot, by_id, take_snapshot
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, in_redis, offer
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)

ALL = Selection(queues=("q",))


@pytest.fixture(params=["far", "all"])
def journal(request: pytest.FixtureRequest) -> str:
    """Without and with a row for each message in Redis."""
    return str(request.param)


def far(make: MakeJournaled, journal: str) -> tuple[JournaledStore, float]:
    """Lets a message wait in the journal. Returns the store of a caller, and the due time."""
    store = make(journal=journal)
    Promoter(store).heartbeat().leadership.enter("q")
    due_ms = clock_ms(store.client) + 30 * DAY_MS
    store.delivery.offer("q", offer("i", due_ms))
    return store, due_ms


def near(make: MakeJournaled) -> tuple[JournaledStore, float]:
    """Lets a message wait in Redis, with a row. Returns the store of a caller, and the due time."""
    store = make(journal="all")
    Promoter(store).heartbeat().leadership.enter("q")
    due_ms = clock_ms(store.client) + 2 * HOUR_MS
    store.delivery.offer("q", offer("i", due_ms))
    return store, due_ms


def during(owner: object, name: str, work: Callable[[], object], patch: pytest.MonkeyPatch, times: int = 1) -> None:
    """Does some work behind the first calls of an operation."""
    real, owed = getattr(owner, name), [work] * times

    def then(*args: Any, **keywords: Any) -> Any:
        found = real(*args, **keywords)
        if owed:
            owed.pop()()
        return found

    patch.setattr(owner, name, then)


def read(store: JournaledStore) -> Snapshot:
    """Notes the message for a bulk change."""
    found = take_snapshot(store, ALL)
    assert found is not None
    return found


def change(store: JournaledStore, snapshot: Snapshot, action: BulkAction) -> dict[str, int]:
    """Does a bulk change. Returns its outcomes."""
    bulk = Bulk(snapshot, action)
    assert bulk.run(store)
    return dict(bulk.outcomes)


def everything(make: MakeJournaled, journal: str) -> list[str]:
    """Lets everything come to Redis. Returns the ids of what waits there."""
    store = make(journal=journal, journal_lead=90 * DAY_MS / 1000)
    Promoter(store).heartbeat().promote()
    assert store.journal.get(["i"]) == []
    return in_redis(store)


def promoter_of_all(make: MakeJournaled, journal: str) -> Promoter:
    """Makes a promoter whose lead is longer than any delay here."""
    return Promoter(make(journal=journal, journal_lead=90 * DAY_MS / 1000)).heartbeat()


def test_a_promoter_that_has_read_the_row_brings_back_nothing(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A promoter reads the row, another caller runs the message, and then the promoter goes on: it runs once."""
    store, _ = far(make_journaled, journal)
    promoter, ran = promoter_of_all(make_journaled, journal), list[Any]()
    during(promoter.store.journal, "promotable", lambda: ran.extend(by_id.run_now(store, ["i"])), monkeypatch)
    promoter.promote()
    assert ran == [("i", "transferred")]
    assert store.client.llen("q") == 1
    assert everything(make_journaled, journal) == [*by_id.browse(store, "q")] == []


@pytest.mark.parametrize("other", ["cancel", "run_now"])
@pytest.mark.parametrize("step", ["rows_of", "delete_rows", "claim_rows"])
def test_of_two_callers_one_has_the_message(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str, other: str, step: str
) -> None:
    """One cancels the message, another one cancels or runs it behind any step of the first: one outcome stands."""
    first, _ = far(make_journaled, journal)
    second = make_journaled(journal=journal)
    outcomes: list[dict[str, int]] = []
    ours, theirs = read(first), read(second)
    owner: Any = first.lookup if step == "rows_of" else first.journal
    owner = first.lookup._promotion if step == "claim_rows" else owner
    act = BulkAction(other)  # type: ignore[arg-type]  # one of its names
    during(owner, step, lambda: outcomes.append(change(second, theirs, act)), monkeypatch)
    outcomes.append(change(first, ours, BulkAction("cancel")))
    done = {"cancel": "cancelled", "run_now": "transferred"}[other]
    assert sum((Counter(one) for one in outcomes), Counter()) in (
        Counter({"gone": 1, done: 1}),
        Counter({"gone": 1, "cancelled": 1}),
    )
    ran = sum(one.get("transferred", 0) for one in outcomes)
    assert first.client.llen("q") == ran
    assert everything(make_journaled, journal) == [*by_id.browse(first, "q")] == []


def test_of_a_message_that_is_promoted_while_it_is_cancelled_no_row_is_left(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A promoter marks the row between two steps of a cancel: a restore brings no message back that was cancelled."""
    store, _ = far(make_journaled, journal)
    promoter, snapshot = promoter_of_all(make_journaled, journal), read(store)
    during(store.lookup, "get", promoter.promote, monkeypatch)
    assert change(store, snapshot, BulkAction("cancel")) == {"cancelled": 1}
    assert store.journal.get(["i"], None) == everything(make_journaled, journal) == []


@pytest.mark.parametrize("action", ["reschedule", "run_now"])
def test_a_row_that_a_dead_promoter_has_pushed_follows_its_message(
    make_journaled: MakeJournaled, journal: str, action: str
) -> None:
    """Between push and mark the row waits still: a change of the message in Redis marks it, and it comes once."""
    store, due_ms = far(make_journaled, journal)
    promoter = promoter_of_all(make_journaled, journal)
    rows = store.journal.promotable(due_ms + 1, 10)
    store.promotion.promote(store.journal.id, promoter.leadership.token, rows)  # and dies
    if action == "reschedule":
        assert [*by_id.reschedule(store, ["i"], due_ms + DAY_MS)] == [("i", "rescheduled")]
    else:
        assert [*by_id.run_now(store, ["i"])] == [("i", "transferred")]
    left = ["i"] if action == "reschedule" else []
    assert everything(make_journaled, journal) == left
    assert [one.due_ms for one in by_id.browse(store, "q")] == [due_ms + DAY_MS] * len(left)


def test_a_message_in_redis_that_is_put_off_beyond_the_horizon_stays_there(
    make_journaled: MakeJournaled, journal: str
) -> None:
    """Messages move from the journal to Redis only."""
    store = make_journaled(journal=journal)
    Promoter(store).heartbeat().leadership.enter("q")
    now_ms = clock_ms(store.client)
    store.delivery.offer("q", offer("i", now_ms + HOUR_MS))
    assert [*by_id.reschedule(store, ["i"], now_ms + 30 * DAY_MS)] == [("i", "rescheduled")]
    assert in_redis(store) == ["i"]
    assert store.journal.browse("q") == []
    assert [row.due_ms for row in store.journal.get(["i"], None)] == [now_ms + 30 * DAY_MS] * (journal == "all")


def test_a_message_that_others_change_again_and_again_is_moved(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """Other callers move the message each time it has been read: no caller takes it for one that does not wait."""
    other, due_ms = far(make_journaled, journal)
    store, times = make_journaled(journal=journal), iter(range(1, 9))
    moved: list[object] = []

    def moves() -> None:
        moved.extend(by_id.reschedule(other, ["i"], due_ms + next(times) * DAY_MS))

    moves()
    during(store.lookup, "get", moves, monkeypatch, 3)
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "rescheduled")]
    assert moved == [("i", "rescheduled")] * 4
    assert [one.due_ms for one in by_id.browse(store, "q")] == [due_ms]
    assert everything(make_journaled, journal) == ["i"]


def test_of_a_message_that_is_put_off_while_it_is_cancelled_no_row_is_left(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller has put the row off, and not yet its message: the cancel takes both."""
    store, due_ms = near(make_journaled)
    other, outcomes = make_journaled(journal="all"), list[dict[str, int]]()
    snapshot = read(other)
    during(store.journal, "follow", lambda: outcomes.append(change(other, snapshot, BulkAction("cancel"))), monkeypatch)
    assert [*by_id.reschedule(store, ["i"], due_ms + HOUR_MS)] == [("i", "not_delayed")]
    assert outcomes == [{"cancelled": 1}]
    assert store.journal.get(["i"], None) == everything(make_journaled, "all") == []


def test_a_message_that_a_cancel_leaves_keeps_its_row(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller moves a message out of the range that is cancelled: it stays, and so does its row."""
    store, due_ms = near(make_journaled)
    other = make_journaled(journal="all")
    snapshot = take_snapshot(store, Selection(queues=("q",), from_ms=due_ms))
    assert snapshot is not None
    during(store.lookup, "rows_of", lambda: [*by_id.reschedule(other, ["i"], due_ms - HOUR_MS)], monkeypatch)
    assert change(store, snapshot, BulkAction("cancel")) == {"gone": 1}
    assert in_redis(store) == ["i"]
    assert [row.due_ms for row in store.journal.get(["i"], None)] == [due_ms - HOUR_MS]
