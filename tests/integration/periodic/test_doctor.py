"""What the doctor says of periodic entries."""

import pytest

import celery_ext
from celery_ext.doctor import Finding, all_checks
from celery_ext.doctor.subject import Subject
from celery_ext.periodic.source import Settings
from celery_ext.periodic.store import OTHER_SCHEDULE, STOCK_BEAT, PeriodicStore
from tests.support.examining import levels, look
from tests.support.workers.periodic import SCHEDULE, Process, StartProcess, every


@pytest.fixture
def process(start_process: StartProcess) -> Process:
    """A process that has armed three entries."""
    return start_process("p", SCHEDULE)


def test_the_doctor(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names wrong entries, another schedule, a stock beat, changes that will not last, and that nobody arms."""
    periodic, now_ms = process.store.part(PeriodicStore), process.store.now_ms()
    assert ["wrong" in finding.found for finding in look("periodic", process.app, process.store)] == [True]
    periodic.note_sighting(OTHER_SCHEDULE, now_ms)
    periodic.note_sighting(STOCK_BEAT, now_ms)
    process.arming.end()
    found = " ".join(finding.found for finding in look("periodic", process.app, process.store))
    for word in ("no process arms", "another periodic schedule", "a stock beat"):
        assert word in found
    assert "admin" not in found
    monkeypatch.setattr(Settings, "overwritten", lambda self: ["report"])
    assert any("takes that back: report" in one.found for one in look("periodic", process.app, process.store))
    periodic.note_sighting(STOCK_BEAT, now_ms - 3_600_000)
    assert not any("stock beat" in finding.found for finding in look("periodic", process.app, process.store))


def tick() -> None:
    """Is a task."""


def findings(process: Process) -> list[Finding]:
    """Returns what the doctor finds in an app whose modules are imported."""
    [check] = [each for each in all_checks() if each.name == "periodic"]
    return list(check.look(Subject(process.app, process.store, has_tasks=True)))


def test_entries_without_a_task_are_named(start_process: StartProcess) -> None:
    """Those of the app and those that are armed, where the modules of the app are imported."""
    process = start_process("p", {"typo": every(600.0, "shop.tcik"), "good": every(600.0)})
    process.app.task(name="shop.tick", shared=False)(tick)
    assert look("periodic", process.app, process.store) == []
    [found] = findings(process)
    assert found.found == "periodic entries whose task the app does not have: typo (shop.tcik)"
    process.app.conf.beat_schedule = {}
    assert findings(process) == [found]


def test_entries_that_nobody_sends_are_found(start_process: StartProcess) -> None:
    """Where workers or our beat arm, nobody does so far; else only a stock beat sends them, which nobody sees."""
    process = start_process("p", {})
    process.arming.end()
    process.app.task(name="shop.tick", shared=False)(tick)
    assert findings(process) == []
    process.app.conf.beat_schedule = {"tick": every(600.0)}
    [found] = findings(process)
    assert (found.level, found.found[:34]) == ("notice", "nothing but a `celery beat` sends ")
    process.app.conf.beat_scheduler = "celery_ext.periodic:Scheduler"
    [found] = findings(process)
    assert (found.level, found.do) == ("error", "start `celery beat`")
    process.app.conf.beat_scheduler = "celery.beat:PersistentScheduler"
    celery_ext.install(process.app, periodic=True)
    [found] = findings(process)
    assert (levels([found]), found.found) == (["error"], "no process arms the 1 periodic entry")


def test_entries_that_differ_are_named(start_process: StartProcess) -> None:
    """Where processes have different schedules, those in which this app differs from what is armed."""
    start_process("old", {"kept": every(600.0), "host": every(600.0, args=["host 1"])}).arming.end()
    process = start_process("new", {"kept": every(600.0), "host": every(600.0, args=["host 2"])})
    process.store.part(PeriodicStore).note_sighting(OTHER_SCHEDULE, process.store.now_ms())
    process.app.conf.beat_schedule["host"]["args"] = ["host 1"]
    [found] = look("periodic", process.app, process.store)
    assert found.found.endswith("differ from those of this app: host")
