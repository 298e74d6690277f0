"""Schedules as lists and the page show them."""

from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule

from celery_ext.periodic.words import in_words


class Tides(BaseSchedule):
    """A schedule of somebody else."""

    def __repr__(self) -> str:
        return "<tides:  at\n high water>"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (crontab(hour=3, minute=0), "each day at 03:00 (Europe/Berlin)"),
        (crontab(), "each minute"),
        (crontab(minute="*/15"), "each 15 minutes"),
        (crontab(minute=30), "each hour at :30"),
        (crontab(minute="7,8,9"), "each hour at :07, :08, :09"),
        (crontab(minute=0, hour="*/2"), "each 2 hours at :00 (Europe/Berlin)"),
        (crontab(minute=0, hour="3,15", day_of_week="sun"), "Sunday at 03:00, 15:00 (Europe/Berlin)"),
        (
            crontab(minute="*/10", hour="8-18", day_of_week="mon-fri"),
            "each 10 minutes of hours 8-18, Monday to Friday (Europe/Berlin)",
        ),
        (crontab(minute="5,10,50", hour="9-17"), "at :05, :10, :50 of hours 9-17 (Europe/Berlin)"),
        (crontab(0, 0, day_of_month=1), "day 1 of the month at 00:00 (Europe/Berlin)"),
        (
            crontab(0, 0, day_of_month="1,15", month_of_year="1,7"),
            "day 1, 15 of the month in January, July at 00:00 (Europe/Berlin)",
        ),
        (crontab(0, 12, day_of_month=13, day_of_week="fri"), "Friday on day 13 of the month at 12:00 (Europe/Berlin)"),
        (crontab(minute="*", hour="22,23,0,1"), "each minute of hours 0-1, 22-23 (Europe/Berlin)"),
        (schedule(timedelta(seconds=10)), "each 10s"),
        (schedule(timedelta(days=1, hours=2)), "each 1d 2h"),
        (Tides(), "tides: at high water"),
    ],
)
def test_a_schedule_in_words(found: Any, words: str) -> None:
    """Days, times and the zone that they are in; of a class that nobody knows, its own text."""
    app = Celery("shop", set_as_current=False)
    app.conf.timezone = "Europe/Berlin"
    found.app = app
    assert in_words(found) == words
