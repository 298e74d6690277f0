"""Numbers, durations, times and the verdict on all of it, as the page shows them."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from celery_ext.doctor import Finding
from celery_ext.health import Level, QueueState
from celery_ext.journal.state import JournalState, Loss
from celery_ext.serve.page.figures import Fault, health, moment, number, quantile, seconds, size
from celery_ext.serve.page.overview import fault_of
from kombu_delayq.store.counts import LATENESS_BOUNDS_S, HeldBack, Histogram, QueueStats, counts_of

NOW = 1_795_374_000_000.0  # 22 November 2026, 19:00 UTC


def row(queue: str = "mail", **given: Any) -> QueueState:
    """Returns a queue with three delayed messages, a consumer, and what is given of its numbers or its state."""
    state = {"unacked": 0, "consumers": 1, "paused_ms": None, "slot": None, "node": None}
    state |= {name: given.pop(name) for name in list(given) if name in state}
    held = HeldBack(5.0, 5.0, NOW) if given.pop("held_back", False) else None
    numbers = {"now_ms": NOW, "delayed": 3, "ready": 0, "overdue": 0, "next_due_ms": NOW + 5000} | given
    return QueueState(QueueStats(queue, **numbers), replace(counts_of({}, []), held_back=held), **state)


def overdue(by_s: float, **given: Any) -> QueueState:
    """Returns a queue with two messages that should have left long ago."""
    return row(overdue=2, next_due_ms=NOW - by_s * 1000, **given)


def unconsumed(for_s: float | None, **given: Any) -> QueueState:
    """Returns a queue with two messages, the oldest of which has waited for so long; None if nobody knows."""
    return row(ready=2, ready_since_ms=None if for_s is None else NOW - for_s * 1000, **given)


@pytest.mark.parametrize(
    ("after_ms", "text", "words"),
    [
        (5_000, "19:00:05", "in 5.0s"),
        (-5_000, "18:59:55", "5.0s ago"),
        (-2_000, "18:59:58", "now"),
        (86_400_000, "23 Nov, 19:00", "in 1d"),
        (60 * 86_400_000, "21 Jan 2027, 19:00", "in 60d"),
        (inf, "never", ""),
    ],
)
def test_a_time(after_ms: float, text: str, words: str) -> None:
    """A time of today is a clock, any other has its day; both say how far away they are."""
    found = moment(NOW + after_ms, NOW)
    assert found is not None
    assert (found.text, found.words) == (text, words)


def test_numbers_are_read_at_a_glance() -> None:
    """Counts have separators, bytes and seconds the unit that fits."""
    assert number(1_000_000) == "1,000,000"
    assert [size(count) for count in (0, 999, 1_500, 212_400_000, 3e12)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "212 MB",
        "3.0 TB",
    ]
    assert [seconds(value) for value in (0.004, 1.0, 1.25, 90.0, 7200.0)] == ["4 ms", "1 s", "1.2 s", "1.5 min", "2 h"]
    late = Histogram(LATENESS_BOUNDS_S, (0,) * (len(LATENESS_BOUNDS_S) - 1) + (1,), 1.0, 2)
    assert [quantile(late, share) for share in (0.5, 0.99)] == ["1 h", "> 1 h"]
    assert quantile(counts_of({}, []).waits, 0.5) == ""


@pytest.mark.parametrize(
    ("rows", "leader", "state", "title"),
    [
        ([row()], "one", "ok", "All is well"),
        ([], "one", "ok", "All is well"),
        ([row()], "", "bad", "Nobody transfers"),
        ([row()], None, "warn", "Nobody knows who leads"),
        ([overdue(1.0)], "one", "ok", "All is well"),
        ([overdue(200.0, held_back=True)], "one", "ok", "All is well"),
        ([overdue(20.0)], "one", "warn", "Tasks of “mail” are overdue"),
        ([overdue(200.0)], "one", "bad", "Tasks of “mail” are overdue"),
        ([row(ready=2, consumers=0)], "one", "warn", "Nobody consumes “mail”"),
        ([row(ready=2, consumers=None)], "one", "ok", "All is well"),
        ([unconsumed(599.0)], "one", "ok", "All is well"),
        ([unconsumed(None)], "one", "ok", "All is well"),
        ([unconsumed(601.0)], "one", "warn", "Tasks of “mail” wait for workers"),
        ([unconsumed(601.0, paused_ms=NOW)], "one", "warn", "“mail” is paused"),
        ([row(error="WRONGTYPE")], "one", "warn", "“mail” cannot be read"),
        ([row(ready=2, consumers=0)], "", "bad", "Nobody transfers; 1 more below"),
    ],
)
def test_the_verdict(rows: list[QueueState], leader: str | None, state: str, title: str) -> None:
    """The worst that was found is the title, and everything that was found is said."""
    found = health(rows, leader)
    assert (found.state, found.title) == (state, title)
    assert found.reasons


def test_the_title_names_what_is_in_trouble_and_the_worst_comes_first() -> None:
    """A queue that nobody consumes is named among others that are consumed; each queue has its worst fault."""
    rows = [
        *(row(f"busy-{number}", ready=1, consumers=2) for number in range(6)),
        row("few", ready=2, consumers=0),
        row("many", ready=9, consumers=0, paused_ms=NOW),
        overdue(200.0),
    ]
    found = health([*rows[:7]], "one")
    assert (found.title, found.reasons[0].queues) == ("Nobody consumes “few”", ("few",))
    found = health(rows, "one")
    assert found.title == "Tasks of “mail” are overdue; 2 more below"
    assert {queue: fault.badge for queue, fault in found.troubled.items()} == {
        "mail": "overdue",
        "many": "no consumer",
        "few": "no consumer",
    }
    assert [*found.troubled] == ["mail", "many", "few"]


def test_what_features_bring_is_not_well() -> None:
    """A fault that a feature brings marks none of the queues of tasks; a queue of dead letters needs no consumer."""
    fault = Fault(False, "Tasks have failed for good", "94 dead letters wait.", ("failed",), folder="dead-letters")
    found = health([row()], "one", others=[fault])
    assert (found.state, found.title, found.troubled) == ("warn", "Tasks have failed for good", {})
    assert health([row("failed", ready=2, consumers=0)], "one", letters=["failed"]).state == "ok"


@pytest.mark.parametrize(
    ("check", "level", "state", "title"),
    [
        ("memory", Level.WARNING, "warn", "Redis is nearly full"),
        ("memory", Level.ERROR, "bad", "Redis is nearly full"),
        ("eviction", Level.WARNING, "warn", "Redis may drop messages"),
        ("persistence", Level.ERROR, "warn", "Redis does not keep all on disk"),
    ],
)
def test_what_the_doctor_finds_about_servers_is_said(check: str, level: Level, state: str, title: str) -> None:
    """It deserves a look, and a Redis that is full is bad."""
    found = health([row()], "one", others=[fault_of(Finding(level, "a:1 is not well", check=check))])
    assert (found.state, found.title, found.reasons[0].text) == (state, title, "a:1 is not well.")


SOUND = JournalState("sqlite://", None, "one")


@pytest.mark.parametrize(
    ("journal", "state", "text"),
    [
        (SOUND, "ok", "3 delayed tasks in one queue"),
        (
            SOUND._replace(losses=[Loss(NOW, 2), Loss(NOW, 1)]),
            "bad",
            "about 3 tasks are to be restored: run `delayq jo",
        ),
        (SOUND._replace(fault="behind"), "bad", "no promoter has noted it yet: start one, then run `delayq journal re"),
        (SOUND._replace(fault="other"), "bad", "Redis belongs to another journal"),
        (SOUND._replace(error="refused"), "bad", "what waits there is not shown"),
        (SOUND._replace(promoter=None), "bad", "No process promotes"),
        (SOUND._replace(lag_s=59.0), "ok", "3 delayed tasks in one queue"),
        (SOUND._replace(lag_s=90.0), "warn", "waits in the journal, for 1m 30s so far"),
    ],
)
def test_the_verdict_on_a_journal(journal: JournalState, state: str, text: str) -> None:
    """What is wrong with the journal is said, each fault in a sentence of its own."""
    found = health([row()], "one", journal)
    assert found.state == state
    [reason] = found.reasons
    assert text in reason.text


def test_the_calm_sentence() -> None:
    """When all is well, the page says what waits, and what is due next."""
    rows = [row(), row("web", delayed=2, next_due_ms=NOW + 1000)]
    assert health(rows, "one").reasons[0].text == "5 delayed tasks in 2 queues; the next is due in 1.0s."
    assert health([row(delayed=0)], "one").reasons[0].text == "No task waits."
