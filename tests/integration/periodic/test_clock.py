"""What is armed when Redis's clock is wrong for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from celery.schedules import crontab

from kombu_delayq.message.due import moment_of
from tests.support.workers.periodic import HOUR_MS, Process, StartProcess, every


@contextmanager
def later(process: Process, ms: int) -> Iterator[None]:
    """Moves the clock by which a process arms."""
    at_ms = process.store.now_ms() + ms
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(process.store, "now_ms", lambda: at_ms)
        yield


def an_hour_ahead(process: Process) -> set[str]:
    """Arms as when Redis's clock is an hour ahead. Returns the ids of what was sent early."""
    periodic = process.store.periodic
    with later(process, HOUR_MS):
        process.step()
        ahead_ms = process.store.now_ms()
    sent = {identity for identity, due_ms in process.armed() if due_ms <= ahead_ms}
    process.store.lookup.cancel(["celery"], list(sent))
    for name, note in periodic.notes(["celery"])["celery"].items():
        begun = [run for run in note.runs if run[0] < ahead_ms - 60_000]  # of which the script keeps the last one alone
        last_ms = max(note.last_ms, *(at_ms for at_ms, _ in begun), 0)
        left = " ".join(f"{at_ms} {identity}" for at_ms, identity in note.runs[len(begun) :])
        process.store.client.hset(process.store.keys.periodic_notes("celery"), name, f"{note.digest} {last_ms} {left}")
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
    days = process.store.periodic.notes(["celery"])["celery"]["day"].runs
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
    notes = process.store.periodic.notes(["celery"])["celery"]
    seconds = [at_ms - begun_ms for at_ms, _ in notes["second"].runs if at_ms > begun_ms + 20_000]
    assert 60_000 < seconds[0] < 90_000
    assert seconds == list(range(seconds[0], seconds[-1] + 1, 1000))
    assert [round((at_ms - begun_ms) / 900_000) for at_ms, _ in notes["half"].runs] == [6]
    assert [round((at_ms - begun_ms) / 900_000) for at_ms, _ in notes["hour"].runs] == [6]
    assert notes["day"].runs == days
    assert caplog.text.count("the clock of Redis has gone back") == 1
