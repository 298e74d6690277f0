"""A caller moves a message from Redis to the journal, and another one moves it in between, while it is in both."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest

from celery_ext.journal import JournaledStore
from celery_ext.journal.table import WAITING
from celery_ext.waiting import by_id
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, offer
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)

#: Delays that the other caller wants: that of the first one, two others beyond the horizon, and one within it.
DELAYS = {"same": 30 * DAY_MS, "earlier": 20 * DAY_MS, "later": 40 * DAY_MS, "near": HOUR_MS}
#: With these the journal has a row for each message in Redis, or not.
TIERS = pytest.mark.parametrize("journal", ["far", "all"])


class _Killed(Exception):
    """The first caller dies."""


@dataclass
class Callers:
    """Two callers, with a message in Redis that the first one moves to the journal.

    Attributes:
        first: The store of the first caller.
        second: The store of the other one.
        now_ms: Redis's clock before the first move, ms since the epoch.
    """

    first: JournaledStore
    second: JournaledStore
    now_ms: float
    _make: MakeJournaled
    _patch: pytest.MonkeyPatch
    _journal: str

    def first_moves(self) -> str:
        """Moves the message to the journal. Returns the word for it."""
        return move(self.first, self.now_ms + DELAYS["same"])

    def in_between(self, work: Callable[[], object]) -> None:
        """Does some work when the first caller has made the row that waits, and the message is in Redis still."""
        real, owed = self.first.journal.let_wait, [work]

        def made(*args: Any) -> bool:
            waits = real(*args)
            if owed and waits:
                owed.pop()()
            return waits

        self._patch.setattr(self.first.journal, "let_wait", made)

    def first_dies(self) -> None:
        """Begins to move the message, and leaves it in both."""

        def dies() -> None:
            raise _Killed

        self.in_between(dies)
        with pytest.raises(_Killed):
            self.first_moves()

    def all_promoted(self) -> list[float]:
        """Lets everything come to Redis. Returns the due times of what waits there."""
        return all_promoted(self._make, self._journal)


@pytest.fixture
def callers(make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str) -> Callers:
    """Two callers, with a message in Redis."""
    first, second = make_journaled(journal=journal), make_journaled(journal=journal)
    Promoter(second).beat().office.enter("q")
    now_ms = clock_ms(first.client)
    first.delivery.offer("q", offer("i", now_ms + 2 * HOUR_MS))
    return Callers(first, second, now_ms, make_journaled, monkeypatch, journal)


def move(store: JournaledStore, due_ms: float) -> str:
    """Moves the message. Returns the word for it."""
    [(_, word)] = by_id.reschedule(store, ["i"], due_ms)
    return word


def all_promoted(make: MakeJournaled, journal: str) -> list[float]:
    """Lets everything come to Redis. Returns the due times of what waits there."""
    store = make(journal=journal, journal_lead=90 * DAY_MS / 1000)
    Promoter(store).beat().round()
    return [one.due_ms for one in store.redis_alone.scan.browse("q", count=10).messages]


@TIERS
@pytest.mark.parametrize("delay", DELAYS)
def test_the_message_waits_once_for_the_other_time(callers: Callers, delay: str) -> None:
    """The other caller's move succeeds; the message waits once, where messages of its time wait."""
    due_ms = callers.now_ms + DELAYS[delay]
    words: list[str] = []
    callers.in_between(lambda: words.append(move(callers.second, due_ms)))
    assert callers.first_moves() == "rescheduled"
    assert words == ["rescheduled"]
    [found] = by_id.browse(callers.second, "q")
    assert (found.due_ms, found.backup) == (due_ms, "hash" if delay == "near" else "journal")
    assert callers.all_promoted() == [due_ms]


@TIERS
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("step", ["get", "mark", "follow", "replace", "let_wait"])
def test_the_first_caller_ends_in_the_middle_of_the_other_one(
    callers: Callers, monkeypatch: pytest.MonkeyPatch, delay: str, step: str
) -> None:
    """Behind whichever step of the other caller it goes on, no message is lost, and none comes twice."""
    second, due_ms = callers.second, callers.now_ms + DELAYS[delay]
    in_both, goes_on = Event(), Event()
    callers.in_between(lambda: (in_both.set(), goes_on.wait(30)))
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(callers.first_moves)
        assert in_both.wait(30)
        real = getattr(second.journal, step)

        def then_the_first_ends(*args: Any) -> Any:
            found = real(*args)
            if args[-1] is None or step != "get":  # not yet when the message is looked up
                goes_on.set()
                moved.result(30)
            return found

        monkeypatch.setattr(second.journal, step, then_the_first_ends)
        try:
            assert move(second, due_ms) == "rescheduled"
        finally:
            goes_on.set()
        assert moved.result(30) == "rescheduled"
    [found] = by_id.browse(second, "q")
    assert (found.due_ms, found.backup) == (due_ms, "hash" if delay == "near" else "journal")
    assert callers.all_promoted() == [due_ms]


@TIERS
@pytest.mark.parametrize("delay", DELAYS)
def test_what_a_dead_caller_left_in_both_waits_once(callers: Callers, delay: str) -> None:
    """The next caller moves it, and nothing comes at the time of before."""
    callers.first_dies()
    due_ms = callers.now_ms + DELAYS[delay]
    assert move(callers.second, due_ms) == "rescheduled"
    assert [one.due_ms for one in by_id.browse(callers.second, "q")] == [due_ms]
    assert callers.all_promoted() == [due_ms]


@TIERS
def test_what_a_dead_caller_left_in_both_runs_once(callers: Callers) -> None:
    """Another caller runs it now, and nothing of it waits any more."""
    callers.first_dies()
    assert [*by_id.run_now(callers.second, ["i"])] == [("i", "transferred")]
    assert callers.second.client.llen("q") == 1
    assert [*by_id.browse(callers.second, "q")] == callers.all_promoted() == []


def rows_of(store: JournaledStore) -> list[tuple[float, bool]]:
    """Returns due times of all rows of the message, and whether they wait."""
    return [(row.due_ms, row.state == WAITING) for row in store.journal.get(["i"], None)]


@pytest.mark.parametrize("has_eta", [True, False], ids=["eta", "no eta"])
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("first_delay", ["same", "near"])
def test_the_row_is_ahead_of_its_message(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, first_delay: str, delay: str, has_eta: bool
) -> None:
    """While one caller has put the row off, and not yet the message, another moves both, and one row goes with it."""
    first, second = make_journaled(journal="all"), make_journaled(journal="all")
    Promoter(second).beat().office.enter("q")
    now_ms = clock_ms(first.client)
    sent = offer("i", now_ms + HOUR_MS / 2)
    if has_eta:
        message = json.loads(sent.body)
        message["headers"]["eta"] = "2000-01-01T00:00:00+00:00"
        sent = sent._replace(body=json.dumps(message).encode())
    first.delivery.offer("q", sent)
    real, words = first.journal.follow, list[str]()

    def ahead(changes: Any) -> None:
        real(changes)
        monkeypatch.setattr(first.journal, "follow", real)
        words.append(move(second, now_ms + DELAYS[delay]))

    monkeypatch.setattr(first.journal, "follow", ahead)
    due_ms = now_ms + DELAYS[first_delay]
    words.append(move(first, due_ms))
    assert words == ["rescheduled", "rescheduled"]
    [found] = by_id.browse(second, "q")
    assert (found.due_ms, found.backup) == (due_ms, "hash" if first_delay == "near" else "journal")
    assert rows_of(second) == [(due_ms, first_delay != "near")]
    assert all_promoted(make_journaled, "all") == [due_ms]


@TIERS
def test_a_row_ahead_of_its_message_is_due_when_the_message_runs(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """When another caller runs a message, a row that a dead caller has put off is due no later."""
    first, second = make_journaled(journal="all"), make_journaled(journal=journal)
    Promoter(second).beat().office.enter("q")
    now_ms = clock_ms(first.client)
    first.delivery.offer("q", offer("i", now_ms + HOUR_MS))
    real = first.journal.follow

    def dies(changes: Any) -> None:
        real(changes)
        raise _Killed

    monkeypatch.setattr(first.journal, "follow", dies)
    with pytest.raises(_Killed):
        move(first, now_ms + DELAYS["same"])
    assert [*by_id.run_now(second, ["i"])] == [("i", "transferred")]
    [(due_ms, waits)] = rows_of(second)
    assert due_ms < now_ms + HOUR_MS
    assert not waits
