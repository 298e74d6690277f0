"""Which schedule holds where processes have different ones."""

import pytest
from celery.schedules import crontab

from celery_ext.periodic import arming
from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.periodic.store import PeriodicStore
from tests.support.workers.periodic import Process, StartProcess, every


def stands_by(process: Process) -> bool:
    """Looks, and returns whether the process leaves arming to others."""
    return not process.step().arming.leads


@pytest.fixture
def restarts_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a process take over at the second look that finds nobody."""
    monkeypatch.setattr(arming, "RESTART_S", 0.0)


def test_the_schedule_noted_last_wins(start_process: StartProcess, caplog: pytest.LogCaptureFixture) -> None:
    """In a rolling deploy entries are changed, removed and added with the first new process, and old ones stand by."""
    old = start_process("old", {"changed": every(1.0), "removed": every(1.0), "kept": every(3600.0)})
    [kept] = [due for _, due in old.armed() if due - old.store.now_ms() > 100_000]
    new = start_process("new", {"changed": every(1800.0), "kept": every(3600.0), "added": every(900.0)})
    assert stands_by(old)
    assert not stands_by(new)
    assert sorted(round((due - new.store.now_ms()) / 900_000) for _, due in new.armed()) == [1, 2, 4]
    assert kept in [due for _, due in new.armed()]
    assert sorted(new.store.part(PeriodicStore).records()) == ["added", "changed", "kept"]
    assert stands_by(old)
    assert caplog.text.count("has another periodic schedule") == 1


@pytest.mark.usefixtures("restarts_are_over")
def test_who_is_left_takes_over(start_process: StartProcess, caplog: pytest.LogCaptureFixture) -> None:
    """When the process that started last has ended, such as a canary, the others arm their own schedule again."""
    monthly = crontab("0", "0", day_of_month="1")
    schedule = {"kept": every(600.0), "removed": every(monthly), "differs": every(monthly, args=["host 1"])}
    old = start_process("old", schedule)
    kept = sorted(old.armed())
    canary = start_process("canary", {"kept": every(600.0), "differs": every(monthly, args=["host 2"])})
    assert stands_by(old)
    assert not stands_by(canary)
    assert stands_by(old)
    canary.arming.end()
    assert stands_by(old), "the canary may be starting anew"
    assert not stands_by(old)
    assert sorted(old.armed()) == kept
    assert "with entries that differ: differs, removed\n" in caplog.text


@pytest.mark.usefixtures("restarts_are_over")
def test_of_those_left_the_one_that_started_last_arms(start_process: StartProcess) -> None:
    """Where each process has a schedule of its own, they agree on one, whichever takes over first."""
    first, second, third = (start_process(name, {"e": every(600.0, args=[name])}) for name in ("1", "2", "3"))
    assert stands_by(first)
    assert not stands_by(third)
    third.arming.end()
    assert stands_by(first)
    assert not stands_by(first)
    assert not stands_by(second) or stands_by(first)
    assert not stands_by(second)
    assert stands_by(first)
    assert len(second.armed()) == 1


def test_a_restart_is_waited_for(start_process: StartProcess) -> None:
    """No process with an old schedule arms while the newest one restarts."""
    old, new = (start_process(name, {"e": every(600.0, args=[name])}) for name in ("old", "new"))
    assert stands_by(old)
    assert not stands_by(new)
    new.arming.end()
    assert stands_by(old)
    assert stands_by(old)
    assert not stands_by(new)


@pytest.mark.usefixtures("restarts_are_over")
def test_the_newest_process_keeps_its_schedule(start_process: StartProcess) -> None:
    """One that starts in the moment in which another takes over arms, also when its note was overwritten."""
    old, canary = (start_process(name, {"e": every(600.0, args=[name])}) for name in ("old", "canary"))
    assert stands_by(old)
    canary.arming.end()
    assert stands_by(old)
    new = start_process("new", {"e": every(600.0, args=["new"])})
    state = PeriodicKeys(new.store.keys).state
    new.store.client.hset(state, mapping={"schedule": old.arming._schedule, "began": old.arming._began_ms})
    assert not stands_by(new)
    assert stands_by(old)
    assert len(new.armed()) == 1
