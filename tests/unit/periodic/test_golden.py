"""A year of runs in seven zones, compared with what Celery's own beat sends, by a clock that is moved."""

import copy
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab, schedule

from celery_ext.periodic.times import missed_runs, next_ms, runs_after, whole_ms

#: Zones with odd changes of their clocks, each with a year that has some.
ZONES = {
    "Europe/Berlin": 2026,
    "Australia/Lord_Howe": 2026,  # by half an hour
    "America/St_Johns": 2006,  # at a minute past midnight
    "Pacific/Apia": 2011,  # without December 30
    "America/Sao_Paulo": 2018,  # at midnight
    "Africa/Casablanca": 2025,  # around Ramadan
    "America/New_York": 2026,
}
ENTRIES = {
    "in the gap": crontab(minute=30, hour=2),
    "after midnight": crontab(minute=15, hour=0),
    "some hours": crontab(minute=45, hour="0-3,23", day_of_week="sun"),
    "month": crontab(minute=0, hour=0, day_of_month=1),
    "week": crontab(minute=30, hour=1, day_of_week="sun"),
    "interval": schedule(timedelta(days=3, hours=13)),
    "day": schedule(timedelta(days=1), relative=True),
}


class MovedBeat(Scheduler):
    """Celery's beat, which notes what it sends, and does not wake up 10 ms early.

    Args:
        app: The app.
        begin: Where its clock begins.
    """

    def __init__(self, app: Celery, begin: datetime) -> None:
        self.clock = begin
        self.sent = defaultdict[str, list[int]](list)
        super().__init__(app, max_interval=10**9)

    def setup_schedule(self) -> None:
        """Gives the schedules of the entries the clock."""
        super().setup_schedule()
        for entry in self.schedule.values():
            entry.schedule.nowfun = lambda: self.clock.astimezone(self.app.timezone)
            entry.last_run_at = entry.default_now()

    def adjust(self, n: Any, drift: float = 0.0) -> Any:
        """Returns a time as it is."""
        return n

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Notes that an entry is sent."""
        self.sent[entry.name].append(whole_ms(self.clock))

    def run(self, end: datetime) -> None:
        """Moves the clock until the end."""
        while self.clock < end:
            self.clock += timedelta(microseconds=max(round(self.tick() * 1_000_000), 0))


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_runs_is_that_of_beat(zone: str) -> None:
    """Each entry runs at the times at which Celery's beat sends it."""
    begin = datetime(ZONES[zone], 1, 1, 10, 7, 3, tzinfo=UTC)
    end = begin + timedelta(days=365)
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update(timezone=zone, result_expires=None)
    app.conf.beat_schedule = {name: {"task": "t", "schedule": copy.deepcopy(of)} for name, of in ENTRIES.items()}
    beat = MovedBeat(app, begin)
    beat.run(end)
    for name, entry in beat.schedule.items():
        ours = list(takewhile(lambda at: at < whole_ms(end), runs_after(entry.schedule, whole_ms(begin), app.timezone)))
        theirs = [at for at in beat.sent[name] if at < whole_ms(end)]
        assert ours == theirs, (name, [datetime.fromtimestamp(at / 1000, app.timezone) for at in {*ours} ^ {*theirs}])
        assert len(theirs) >= 12


def test_a_schedule_may_name_its_zone() -> None:
    """A class of schedules may have its zone by name, as Celery lets it."""
    nine = crontab("0", "9")
    nine.tz = "America/New_York"
    assert next_ms(nine, whole_ms(datetime(2026, 7, 1, tzinfo=UTC)), UTC) == whole_ms(
        datetime(2026, 7, 1, 13, tzinfo=UTC)
    )


def test_a_certain_time_that_was_missed_is_one_run() -> None:
    """The ``clocked`` of django-celery-beat, which is due at each moment after its time, is missed at that time."""
    clocked = pytest.importorskip("django_celery_beat.clockedschedule").clocked
    moment = datetime(2026, 7, 1, tzinfo=UTC)
    at_ms = whole_ms(moment)
    assert missed_runs(clocked(moment), at_ms - 60_000, at_ms + 100, UTC, 1000) == [at_ms]
    assert missed_runs(clocked(moment), at_ms - 60_000, at_ms - 1, UTC, 1000) == []


def test_an_entry_that_begins_in_a_repeated_hour_goes_on_after_it() -> None:
    """Where the clock is put back the runs of the hour come in its first pass alone, wherever the entry begins."""
    zone = ZoneInfo("America/New_York")
    of, begin, two = crontab("*/20", "0-4"), datetime(2026, 11, 1, 5, tzinfo=UTC), datetime(2026, 11, 1, 7, tzinfo=UTC)
    of.tz = zone
    for minutes in range(45, 120, 5):
        assert next_ms(of, whole_ms(begin + timedelta(minutes=minutes)), zone) == whole_ms(two)
