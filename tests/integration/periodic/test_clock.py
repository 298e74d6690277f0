"""What is armed when Redis's clock is wrong for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from celery.schedules import crontab
from celery.schedules import schedule as every_of

from celery_ext.periodic.entries import Entry, checked
from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.periodic.store import PeriodicStore
from kombu_delayq.message.due import moment_of
from tests.support.workers.periodic import HOUR_MS, Process, StartProcess, every


@contextmanager
def later(process: Process, ms: int) -> Iterator[None]:
    """Moves the clock by which a process arms."""
    at_ms = process.store.now_ms() + ms
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(process.store, "now_ms", lambda: at_ms)
        yield


def an_hour_ahead(process: Process, known_ms: int = 60_000) -> set[str]:
    """Arms as when Redis's clock is an hour ahead. Returns the ids of what was sent early.

    Runs that began longer ago than ``known_ms`` by that clock are forgotten, apart from the last one.
    """
    periodic = process.store.part(PeriodicStore)
    with later(process, HOUR_MS):
        process.step()
        ahead_ms = process.store.now_ms()
    sent = {identity for identity, due_ms in process.armed() if due_ms <= ahead_ms}
    process.store.lookup.cancel(["celery"], list(sent))
    for name, note in periodic.notes(["celery"])["celery"].items():
        begun = [
            run for run in note.runs if run[0] < ahead_ms - known_ms
        ]  # of which the script keeps the last one alone
        last_ms = max(note.last_ms, *(at_ms for at_ms, _ in begun), 0)
        left = " ".join(f"{at_ms} {identity}" for at_ms, identity in note.runs[len(begun) :])
        process.store.client.hset(
            PeriodicKeys(process.store.keys).notes("celery"), name, f"{note.digest} {last_ms} {left}".rstrip()
        )
    return sent


@pytest.mark.parametrize("is_new", [False, True])
def test_entries_go_on_when_the_clock_goes_back(
    start_process: StartProcess, caplog: pytest.LogCaptureFixture, *, is_new: bool
) -> None:
    """They are armed from the present on, also by another process, and what was sent early is not sent again."""
    clock = start_process("clock", {})
    clock.arming.end()
    begun_ms = int(clock.store.now_ms())
    half_past = crontab(str((moment_of(begun_ms).minute + 30) % 60))
    schedule = {"second": every(1.0), "half": every(1800.0), "hour": every(half_past), "day": every(24 * 3600.0)}
    process = start_process("p", schedule)
    days = process.store.part(PeriodicStore).notes(["celery"])["celery"]["day"].runs
    sent = an_hour_ahead(process)
    assert 60 < len(sent) < 100
    if is_new:
        process.arming.end()
        process = start_process("q", schedule)
    process.step()
    with later(process, 30_000):
        process.step()
    process.step()
    assert not sent & {identity for identity, _ in process.armed()}
    notes = process.store.part(PeriodicStore).notes(["celery"])["celery"]
    seconds = [at_ms - begun_ms for at_ms, _ in notes["second"].runs if at_ms > begun_ms + 20_000]
    assert 60_000 < seconds[0] < 90_000
    assert seconds == list(range(seconds[0], seconds[-1] + 1, 1000))
    assert [round((at_ms - begun_ms) / 900_000) for at_ms, _ in notes["half"].runs] == [6]
    assert [round((at_ms - begun_ms) / 900_000) for at_ms, _ in notes["hour"].runs] == [6]
    assert notes["day"].runs == days
    assert caplog.text.count("the clock of Redis has gone back") == 1


def test_what_was_sent_early_may_be_forgotten(start_process: StartProcess) -> None:
    """Entries go on also when no run is known that was sent soon after the present, and paused ones stay paused."""
    process = start_process("p", {"second": every(1.0), "paused": every(1.0)})
    process.store.part(PeriodicStore).pause(["paused"])
    process.step()
    an_hour_ahead(process, known_ms=0)
    key = PeriodicKeys(process.store.keys).notes("celery")
    process.store.client.hset(key, "paused", f"paused {int(process.store.now_ms()) + HOUR_MS}")
    process.step()
    notes = process.store.part(PeriodicStore).notes(["celery"])["celery"]
    assert notes["second"].runs[0][0] - process.store.now_ms() < 90_000
    assert notes["paused"].digest == "paused"
    assert notes["paused"].last_ms <= process.store.now_ms()


def test_a_one_off_comes_once_whatever_the_clock(start_process: StartProcess) -> None:
    """One that waits still comes when the clock has gone back, and one that was sent early does not come again."""
    process = start_process("p", {})
    rows = [Entry(name, "t", every_of(s), one_off=True) for name, s in (("soon", 1800.0), ("later", 9000.0))]
    process.arming._found = checked(process.app, {"often": every(60.0), **{row.name: row for row in rows}})
    process.arming._token = None
    process.step()
    noted = process.store.part(PeriodicStore).notes(["celery"])["celery"]
    an_hour_ahead(process)
    process.step()
    notes = process.store.part(PeriodicStore).notes(["celery"])["celery"]
    assert (notes["soon"].runs, notes["later"].runs) == ((), noted["later"].runs)
    waiting = {identity for identity, _ in process.armed()}
    assert {identity for _, identity in noted["later"].runs} < waiting
    assert not {identity for _, identity in noted["soon"].runs} & waiting
