"""Entries of django-celery-beat: a real worker follows its tables, as its own scheduler does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import until
from tests.support.workers.harness import APPS, MakeProj, Proj
from tests.support.workers.held import in_hand

pytestmark = pytest.mark.wide

pytest.importorskip("django_celery_beat")

#: A program that changes the tables as the admin does. It runs each line of Python that it reads, and prints ``out``.
EDITOR = """
import json, sys
import periodic_django
from celery_ext.periodic.database import EntryTables
from django.core.management import call_command
from django.utils import timezone
from datetime import timedelta
from django_celery_beat.models import *
call_command("migrate", verbosity=0)
print("null", flush=True)
for line in sys.stdin:
    out = None
    exec(line)
    print(json.dumps(out, default=str), flush=True)
"""


class Admin:
    """Somebody who changes rows, each with ``save``, as the admin does."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", EDITOR],
            cwd=APPS,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def do(self, line: str) -> Any:
        """Runs a line of Python. Returns what it leaves in ``out``."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def row(self, name: str) -> dict[str, Any]:
        """Returns what is noted in a row."""
        fields = ["enabled", "last_run_at", "total_run_count"]
        found = self.do(f"out = PeriodicTask.objects.filter(name={name!r}).values(*{fields!r})[0]")
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=60)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the editor has ended"
        return json.loads(line)


def values(proj: Proj) -> list[Any]:
    """Returns the arguments of the runs so far."""
    return [run["value"] for run in proj.runs()]


def await_runs_on_their_way(proj: Proj) -> None:
    """Waits until each run that was due is written down."""
    client = proj.server.client()
    until(lambda: not client.llen("celery") and not in_hand(client), what="nothing is on its way")


@pytest.fixture
def without_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the moments in the tables have no zone."""
    monkeypatch.setenv("PERIODIC_WITHOUT_ZONES", "1")


@pytest.fixture
def proj(make_proj: MakeProj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proj:
    """An app with tables of django-celery-beat."""
    monkeypatch.setenv("PERIODIC_DATABASE", str(tmp_path / "db.sqlite3"))
    return make_proj(include=["periodic_django"])


@pytest.fixture
def admin(proj: Proj) -> Iterator[Admin]:
    """Somebody who changes its rows."""
    with closing(Admin(proj.environment())) as admin:
        yield admin


def test_changes_in_the_tables_hold_at_once(proj: Proj, admin: Admin) -> None:
    """What is added, changed, disabled, or runs once, does so without a restart, and the rows say what has run."""
    worker = proj.worker()
    admin.do("second, _ = IntervalSchedule.objects.get_or_create(every=1, period='seconds')")
    add = "PeriodicTask.objects.create(name={0!r}, task='proj.record', interval=second, args='[\"{0}\"]'{1})"
    begun = datetime.now(UTC)
    admin.do(add.format("added", ""))
    admin.do(add.format("once", ", one_off=True"))
    admin.do(add.format("later", ", start_time=timezone.now() + timedelta(hours=1)"))
    admin.do(add.format("over", ", expires=timezone.now() - timedelta(hours=1)"))
    until(lambda: values(proj).count("added") >= 2 and "once" in values(proj), what="what was added runs")
    admin.do("t = PeriodicTask.objects.get(name='added'); t.args = '[\"changed\"]'; t.save()")
    until(lambda: "changed" in values(proj), what="the change holds")
    as_settings = "app.conf.beat_schedule = {'added': {'task': 'proj.record', 'schedule': 1.0, 'args': ('ARG',)}}"
    for arg, differing in (("changed", []), ("added", ["added"])):
        admin.do("app = periodic_django.app; " + as_settings.replace("ARG", arg))
        assert admin.do("out = EntryTables(app).overwritten()") == differing, "what the settings would take back"
    admin.do("t = PeriodicTask.objects.get(name='added'); t.enabled = False; t.save()")
    # Its start, and the cleanup of results that django-celery-beat adds.
    until(lambda: proj.delayed() == 2, what="nothing waits but what comes later")
    until(lambda: not admin.row("once")["enabled"], what="what runs once is disabled")
    until(lambda: not admin.row("over")["enabled"], what="what is over is disabled")
    await_runs_on_their_way(proj)
    noted = until(lambda: row if (row := admin.row("added"))["total_run_count"] >= 3 else None)
    assert noted is not None
    count = len([value for value in values(proj) if value in ("added", "changed")])
    assert abs(noted["total_run_count"] - count) <= 1
    assert noted["last_run_at"] is None  # as django-celery-beat leaves it
    assert datetime.fromisoformat(admin.row("once")["last_run_at"]) > begun
    assert values(proj).count("once") == 1
    assert {"later", "over"}.isdisjoint(values(proj))
    assert len({run["id"] for run in proj.runs()}) == len(proj.runs())
    assert "Traceback" not in worker.log


@pytest.mark.usefixtures("without_zones")
def test_moments_without_a_zone_are_in_utc(proj: Proj, admin: Admin) -> None:
    """A worker notes runs and disables rows in tables without time zones, as the ``DatabaseScheduler`` does."""
    worker = proj.worker()
    admin.do("second, _ = IntervalSchedule.objects.get_or_create(every=1, period='seconds')")
    begun = datetime.now(UTC).replace(tzinfo=None)
    admin.do(
        "of = dict(task='proj.record', interval=second); now = timezone.now();"
        " PeriodicTask.objects.create(name='e', start_time=now - timedelta(hours=1), args='[1]', **of);"
        " PeriodicTask.objects.create(name='over', expires=now - timedelta(hours=1), args='[2]', **of)"
    )
    until(lambda: not admin.row("over")["enabled"], what="what is over is disabled")
    noted = until(lambda: row if (row := admin.row("e"))["total_run_count"] else None, what="its runs are noted")
    assert noted is not None
    assert datetime.fromisoformat(noted["last_run_at"]) > begun - timedelta(seconds=2)
    until(lambda: values(proj), what="a run that is noted runs")
    assert {*values(proj)} == {1}
    assert "Traceback" not in worker.log


def test_a_last_run_in_the_future_is_none(proj: Proj, admin: Admin) -> None:
    """A row whose last run a clock has noted that was wrong runs at once, and its runs are noted."""
    admin.do("second, _ = IntervalSchedule.objects.get_or_create(every=1, period='seconds')")
    admin.do("row = PeriodicTask(name='e', task='proj.record', interval=second, args='[1]')")
    admin.do("row.last_run_at = timezone.now() + timedelta(hours=1); row.save()")
    proj.worker()
    until(lambda: admin.row("e")["total_run_count"] >= 2, what="runs are noted")
    assert datetime.fromisoformat(admin.row("e")["last_run_at"]) < datetime.now(UTC) + timedelta(minutes=1)


def test_a_one_off_takes_the_place_of_a_row_of_its_name(proj: Proj, admin: Admin) -> None:
    """It runs once, and is disabled then, also when the row before it has run once itself."""
    proj.worker()
    admin.do("from django.db import transaction")
    admin.do("second, _ = IntervalSchedule.objects.get_or_create(every=1, period='seconds')")
    admin.do("PeriodicTask.objects.create(name='e', task='proj.record', interval=second, args='[0]')")
    until(lambda: 0 in values(proj), what="the first row runs")
    for number in (1, 2):
        admin.do("clock = ClockedSchedule.objects.create(clocked_time=timezone.now() + timedelta(seconds=2))")
        admin.do(
            "with transaction.atomic(): PeriodicTask.objects.filter(name='e').delete(); PeriodicTask.objects.create("
            f"name='e', task='proj.record', clocked=clock, one_off=True, args='[{number}]')"
        )
        until(lambda: number in values(proj), what="what takes its place runs")  # noqa: B023
    until(lambda: not admin.row("e")["enabled"], what="the last one is disabled")
    assert admin.row("e")["last_run_at"] is not None
    assert [value for value in values(proj) if value] == [1, 2]


@pytest.mark.parametrize("killed", [False, True])
def test_a_renamed_row_goes_on(proj: Proj, admin: Admin, killed: bool) -> None:
    """A run comes once, also when its row gets another name before the run is noted there, or while nobody arms."""
    worker = proj.worker(pool="solo")
    admin.do("hour, _ = IntervalSchedule.objects.get_or_create(every=1, period='hours')")
    admin.do(
        "PeriodicTask.objects.create(name='old', task='proj.record', interval=hour, args='[1]',"
        " last_run_at=timezone.now() - timedelta(hours=1))"
    )
    until(lambda: 1 in values(proj), what="the missed run comes")
    if killed:
        worker.kill()
    # What is due later is sent after a run that comes again.
    admin.do("clock = ClockedSchedule.objects.create(clocked_time=timezone.now())")
    admin.do(
        "t = PeriodicTask.objects.get(name='old'); t.name = 'new'; t.save();"
        " PeriodicTask.objects.create(name='z', task='proj.record', clocked=clock, one_off=True, args='[2]')"
    )
    if killed:
        proj.worker(pool="solo")
    until(lambda: 2 in values(proj), what="the new name is armed")
    until(lambda: admin.row("new")["total_run_count"], what="the run is noted")
    assert admin.row("new")["total_run_count"] == 1
    # The task of a worker that is killed may begin again, as the same run.
    assert sorted({run["id"]: run["value"] for run in proj.runs()}.values()) == [1, 2]


def test_the_runs_of_a_disabled_row_count_once(proj: Proj, admin: Admin) -> None:
    """Its count is that of its runs, and its last run stays empty, also when another process arms."""
    worker = proj.worker()
    admin.do("second, _ = IntervalSchedule.objects.get_or_create(every=1, period='seconds')")
    admin.do("PeriodicTask.objects.create(name='e', task='proj.record', interval=second, args='[1]')")
    until(lambda: admin.row("e")["total_run_count"] >= 4, what="runs are noted")
    admin.do("t = PeriodicTask.objects.get(name='e'); t.enabled = False; t.save()")
    admin.do("PeriodicTask.objects.create(name='after', task='proj.record', interval=second, args='[2]')")
    # The note of its run is later than the last one of the other row, which may have run until it was disarmed.
    until(lambda: admin.row("after")["total_run_count"], what="the process that arms has seen it")
    until(lambda: 2 in values(proj), what="it runs")
    await_runs_on_their_way(proj)
    found = admin.row("e")
    assert abs(found["total_run_count"] - values(proj).count(1)) <= 1
    assert found["last_run_at"] is None
    count = values(proj).count(2)
    assert worker.stop() == 0
    proj.worker()
    noted = admin.row("after")["total_run_count"]
    until(
        lambda: values(proj).count(2) > count and admin.row("after")["total_run_count"] > noted, what="runs are noted"
    )
    assert admin.row("e") == found
