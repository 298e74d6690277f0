"""A message is in Redis and in the journal, because a caller moves it there: whatever others do, one of them has it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from celery_ext.journal import JournaledStore
from celery_ext.waiting import by_id
from celery_ext.waiting.bulk import Action, Bulk
from celery_ext.waiting.selection import Selection
from celery_ext.waiting.snapshot import Snapshot, take
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, in_redis, offer
from tests.support.store.keyspace import clock_ms

pytestmark = [
    pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True),
    pytest.mark.parametrize("journal", ["far", "all"]),
]

ALL = Selection(queues=("q",))


def sent(make: MakeJournaled, journal: str) -> tuple[JournaledStore, float]:
    """Gives Redis a message. Returns the store of the caller that is to move it, and the time to which it moves it."""
    store = make(journal=journal)
    Promoter(store).beat().office.enter("q")
    now_ms = clock_ms(store.client)
    store.delivery.offer("q", offer("i", now_ms + 2 * HOUR_MS))
    return store, now_ms + 30 * DAY_MS


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
    found = take(store, ALL)
    assert found is not None
    return found


def change(store: JournaledStore, snapshot: Snapshot, action: Action) -> dict[str, int]:
    """Does a bulk change. Returns its outcomes."""
    bulk = Bulk(snapshot, action)
    assert bulk.run(store)
    return dict(bulk.outcomes)


def everything(make: MakeJournaled, journal: str) -> list[str]:
    """Lets everything come to Redis. Returns the ids of what waits there."""
    store = make(journal=journal, journal_lead=90 * DAY_MS / 1000)
    Promoter(store).beat().round()
    assert store.journal.get(["i"]) == []
    return in_redis(store)


def test_a_promoter_that_finds_the_row_loses_no_message(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A promoter whose lead is longer than the horizon takes the row at once: the message waits in Redis, once."""
    store, due_ms = sent(make_journaled, journal)
    promoter = Promoter(make_journaled(journal=journal, journal_lead=90 * DAY_MS / 1000)).beat()
    during(store.journal, "let_wait", promoter.round, monkeypatch)
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "rescheduled")]
    assert in_redis(store) == everything(make_journaled, journal) == ["i"]
    assert [one.due_ms for one in by_id.browse(store, "q")] == [due_ms]


def test_a_promoter_that_has_read_the_row_brings_back_nothing(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A promoter reads the row, another caller runs the message, and then the promoter goes on: it runs once."""
    store, due_ms = sent(make_journaled, journal)
    own = make_journaled(journal=journal, journal_lead=90 * DAY_MS / 1000)
    promoter, other = Promoter(own).beat(), make_journaled(journal=journal)
    ran: list[Any] = []
    during(own.journal, "promotable", lambda: ran.extend(by_id.run_now(other, ["i"])), monkeypatch)
    during(store.journal, "let_wait", promoter.round, monkeypatch)
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "rescheduled")]
    assert ran == [("i", "transferred")]
    assert store.client.llen("q") == 1
    assert everything(make_journaled, journal) == [*by_id.browse(store, "q")] == []


@pytest.mark.parametrize("other", ["cancel", "run_now"])
@pytest.mark.parametrize("step", ["rows_of", "delete_rows", "claim_rows"])
def test_of_two_callers_one_has_the_message(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str, other: str, step: str
) -> None:
    """One cancels the message, another one cancels or runs it behind any step of the first: one outcome stands."""
    store, due_ms = sent(make_journaled, journal)
    first, second = make_journaled(journal=journal), make_journaled(journal=journal)
    outcomes: list[dict[str, int]] = []

    def both() -> None:
        ours, theirs = read(first), read(second)
        owner: Any = first.lookup if step == "rows_of" else first.journal
        owner = first.lookup._promotion if step == "claim_rows" else owner
        act = Action(other)  # type: ignore[arg-type]  # one of its names
        during(owner, step, lambda: outcomes.append(change(second, theirs, act)), monkeypatch)
        outcomes.append(change(first, ours, Action("cancel")))

    during(store.journal, "let_wait", both, monkeypatch)
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "rescheduled")]
    done = {"cancel": "cancelled", "run_now": "transferred"}[other]
    assert sum((Counter(one) for one in outcomes), Counter()) in (
        Counter({"gone": 1, done: 1}),
        Counter({"gone": 1, "cancelled": 1}),
    )
    ran = sum(one.get("transferred", 0) for one in outcomes)
    assert store.client.llen("q") == ran
    assert everything(make_journaled, journal) == [*by_id.browse(store, "q")] == []


def test_a_message_that_leaves_between_two_steps_of_a_cancel_is_cancelled_once(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A cancel has deleted the row when the message leaves Redis: the cancel has it, and another one does not."""
    store, due_ms = sent(make_journaled, journal)
    other, late = make_journaled(journal=journal), make_journaled(journal=journal)
    real = store.lookup._promotion.send_away
    monkeypatch.setattr(store.lookup._promotion, "send_away", lambda *_: "")  # not yet
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "rescheduled")]
    [row], [message] = store.journal.get(["i"]), store.redis_alone.scan.browse("q").messages
    ours, theirs, words = read(other), read(late), list[str]()
    during(other.journal, "delete_rows", lambda: words.append(real("q", row.seq, message)), monkeypatch)
    assert change(other, ours, Action("cancel")) == {"cancelled": 1}
    assert change(late, theirs, Action("cancel")) == {"gone": 1}
    assert words == ["sent_away"]
    assert everything(make_journaled, journal) == [*by_id.browse(store, "q")] == []


def test_of_a_message_that_is_promoted_while_it_is_cancelled_no_row_is_left(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A promoter marks the row between two steps of a cancel: a restore brings no message back that was cancelled."""
    store, due_ms = sent(make_journaled, journal)
    promoter = Promoter(make_journaled(journal=journal, journal_lead=90 * DAY_MS / 1000)).beat()
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "rescheduled")]
    snapshot = read(store)
    during(store.lookup, "get", promoter.round, monkeypatch)
    assert change(store, snapshot, Action("cancel")) == {"cancelled": 1}
    assert store.journal.get(["i"], None) == everything(make_journaled, journal) == []


def test_of_a_message_that_is_put_off_while_it_is_cancelled_no_row_is_left(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """Another caller has put the row off, and not yet its message: the cancel takes both."""
    store, due_ms = sent(make_journaled, journal)
    for time_ms in (due_ms, due_ms - 29 * DAY_MS - 12 * HOUR_MS):  # to the journal and back, so that it has a row
        assert [*by_id.reschedule(store, ["i"], time_ms)] == [("i", "rescheduled")]
    other, outcomes = make_journaled(journal=journal), list[dict[str, int]]()
    snapshot = read(other)
    during(store.journal, "follow", lambda: outcomes.append(change(other, snapshot, Action("cancel"))), monkeypatch)
    assert [*by_id.reschedule(store, ["i"], due_ms)] == [("i", "not_delayed")]
    assert outcomes == [{"cancelled": 1}]
    assert store.journal.get(["i"], None) == everything(make_journaled, journal) == []


def test_a_message_that_a_cancel_leaves_keeps_its_row(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """Another caller moves a message out of the range that is cancelled: it stays, and so does its row."""
    store, due_ms = sent(make_journaled, journal)
    near_ms = due_ms - 29 * DAY_MS - 12 * HOUR_MS
    for time_ms in (due_ms, near_ms):  # to the journal and back, so that it has a row
        assert [*by_id.reschedule(store, ["i"], time_ms)] == [("i", "rescheduled")]
    other = make_journaled(journal=journal)
    snapshot = take(store, Selection(queues=("q",), from_ms=near_ms))
    assert snapshot is not None
    during(store.lookup, "rows_of", lambda: [*by_id.reschedule(other, ["i"], near_ms - HOUR_MS)], monkeypatch)
    assert change(store, snapshot, Action("cancel")) == {"gone": 1}
    assert in_redis(store) == ["i"]
    assert [row.due_ms for row in store.journal.get(["i"], None)] == [near_ms - HOUR_MS]


@pytest.mark.parametrize("operation", ["cancel", "reschedule", "run_now"])
def test_a_message_that_leaves_redis_while_it_is_looked_for_is_found(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str, operation: str
) -> None:
    """The journal is looked at before the message waits there, and Redis when it has left: it is found all the same."""
    mover, due_ms = sent(make_journaled, journal)
    store = make_journaled(journal=journal)
    step = "delete" if operation == "cancel" else "get"
    during(store.journal, step, lambda: [*by_id.reschedule(mover, ["i"], due_ms)], monkeypatch)
    if operation == "cancel":
        assert [one.outcome for one in by_id.cancel(store, ["i"])] == ["cancelled"]
    elif operation == "reschedule":
        assert [*by_id.reschedule(store, ["i"], due_ms + DAY_MS)] == [("i", "rescheduled")]
    else:
        assert [*by_id.run_now(store, ["i"])] == [("i", "transferred")]
    left = [due_ms + DAY_MS] if operation == "reschedule" else []
    assert [one.due_ms for one in by_id.browse(store, "q")] == left
    assert everything(make_journaled, journal) == ["i"] * len(left)


def test_a_message_that_others_change_again_and_again_is_moved(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """Other callers move the message each time it has been read: no caller takes it for one that does not wait."""
    other, due_ms = sent(make_journaled, journal)
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
