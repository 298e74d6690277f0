"""Numbers, durations, times and the verdict on all of it, as the page shows them."""

from math import inf

import pytest

from celery_ext.journal import JournalState, Loss
from celery_ext.serve.page import figures
from celery_ext.serve.page.figures import QueueRow, health, moment, number, seconds, size
from kombu_delayq.store.types import Memory

NOW = 1_795_374_000_000.0  # 22 November 2026, 19:00 UTC
ROOM = Memory(10, 100, "7.2.4")


def row(**given: object) -> QueueRow:
    fields = {
        "queue": "mail",
        "delayed": 3,
        "ready": 0,
        "overdue": 0,
        "overdue_by_s": 0.0,
        "unacked": 0,
        "next_due": moment(NOW + 5000, NOW),
        "p50": "",
        "p99": "",
        "consumers": 1,
    }
    return QueueRow(**{**fields, **given})  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("rows", "leader", "memory", "state", "title"),
    [
        ([row()], "one", ROOM, "ok", "All is well"),
        ([], "one", ROOM, "ok", "All is well"),
        ([row()], None, ROOM, "bad", "Nobody transfers"),
        ([row(overdue=2, overdue_by_s=1.0)], "one", ROOM, "ok", "All is well"),
        ([row(overdue=2, overdue_by_s=200.0, held_back="at 5/s")], "one", ROOM, "ok", "All is well"),
        ([row(overdue=2, overdue_by_s=20.0)], "one", ROOM, "warn", "Tasks are overdue"),
        ([row(overdue=2, overdue_by_s=200.0)], "one", ROOM, "bad", "Tasks are overdue"),
        ([row(ready=2, consumers=0)], "one", ROOM, "warn", "Nobody consumes"),
        ([row(ready=2, consumers=None)], "one", ROOM, "ok", "All is well"),
        ([row(ready=2, oldest_s=299.0)], "one", ROOM, "ok", "All is well"),
        ([row(ready=2, oldest_s=None)], "one", ROOM, "ok", "All is well"),
        ([row(ready=2, oldest_s=301.0)], "one", ROOM, "warn", "Tasks wait for workers"),
        ([row(ready=2, oldest_s=301.0, paused=moment(NOW, NOW))], "one", ROOM, "warn", "A queue is paused"),
        ([row()], "one", Memory(85, 100, ""), "warn", "Redis is nearly full"),
        ([row()], "one", Memory(99, 100, ""), "bad", "Redis is nearly full"),
        ([row(error="WRONGTYPE")], "one", ROOM, "warn", "A queue cannot be read"),
        ([row(ready=2, consumers=0)], None, ROOM, "bad", "Nobody transfers, and more"),
    ],
)
def test_the_verdict(rows: list[QueueRow], leader: str | None, memory: Memory, state: str, title: str) -> None:
    """The worst that was found is the title, and everything that was found is said."""
    found = health(rows, leader, [], memory)
    assert (found.state, found.title) == (state, title)
    assert found.reasons


def test_dead_letters_and_an_empty_disk_are_not_well() -> None:
    """Dead letters that wait are said, with a Redis that keeps nothing; a queue of them needs no consumer."""
    found = health([row()], "one", [], ROOM, letters={"failed": 94, "other": 0})
    assert (found.state, found.title) == ("warn", "Tasks have failed for good")
    assert found.reasons[0].startswith("94 dead letters wait in “failed”")
    assert health([row()], "one", [], ROOM, letters={"failed": 0}).state == "ok"
    assert health([row()], "one", [], ROOM, letters={"failed": 94}, is_recent=False).state == "ok"
    assert health([row()], "one", [], ROOM, eviction="it does").title == "Redis may drop messages"
    idle = health([row(queue="failed", ready=2, consumers=0)], "one", [], ROOM, letters={"failed": 2})
    assert idle.title == "Tasks have failed for good"
    found = health([row()], "one", [], ROOM, without_disk=["a:1"])
    assert (found.state, found.reasons) == ("warn", ["Redis keeps nothing on disk: a restart loses all that waits."])


SOUND = JournalState("sqlite://", None, "one", {}, {}, None, 0.0, None, [], None, 0, 0, None)


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
    found = health([row()], "one", [], ROOM, journal)
    assert found.state == state
    [reason] = found.reasons
    assert text in reason


def test_the_calm_sentence() -> None:
    """When all is well, the page says what waits, and what is due next."""
    rows = [row(), row(queue="web", delayed=2, next_due=moment(NOW + 1000, NOW))]
    assert health(rows, "one", [], ROOM).reasons == ["5 delayed tasks in 2 queues; the next is due in 1.0s."]
    assert figures.health([row(delayed=0)], "one", [], ROOM).reasons == ["No task waits."]
