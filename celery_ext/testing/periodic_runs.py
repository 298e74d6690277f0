"""Sends what the schedules of a test's apps ask for, while the clock of the test moves on."""

from datetime import timedelta
from typing import Any

from celery_ext.periodic import Entry, Settings, is_periodic, next_ms, options_of, send_run
from celery_ext.testing.apps import active_apps
from celery_ext.testing.sending import MOST_SENT, Clock


class PeriodicRuns:
    """The runs of the periodic entries of all apps, each sent once.

    Args:
        clock: The clock of the test. Entries count from where it has begun.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._begun_ms = clock, 0
        self._latest: dict[tuple[int, str], int] = {}

    def send(self, end_s: float) -> None:
        """Sends the runs until a time, s since the epoch by the clock that stands still, as delayed tasks.

        Raises:
            RuntimeError: They are more than a test can want.
        """
        end_ms, sent = self._clock.now_ms() + (end_s - self._clock.still_s()) * 1000, 0
        begun_ms = int(self._clock.begin())
        if begun_ms != self._begun_ms:
            self._begun_ms = begun_ms
            self._latest.clear()
        for app in filter(is_periodic, active_apps()):
            found = Settings(app).read()
            for entry in found.entries.values() if found is not None else ():
                key = id(app), entry.name
                at_ms: int | None
                if key in self._latest:
                    at_ms = entry.after(self._latest[key], app.timezone)
                else:
                    at_ms = next_ms(entry.schedule, begun_ms, app.timezone)
                while at_ms is not None and at_ms <= end_ms:
                    sent += 1
                    if sent > MOST_SENT:
                        raise RuntimeError(f"the schedule asks for more than {MOST_SENT:,} runs in this time")
                    after = entry.after(at_ms, app.timezone)
                    self._send(app, entry, at_ms, after)
                    self._latest[key], at_ms = at_ms, after

    def _send(self, app: Any, entry: Entry, at_ms: int, after: int | None) -> None:
        options = options_of(app, entry, at_ms, after)
        skipped = timedelta(seconds=self._clock.skipped_s)  # which the test adds to each moment
        for name in ("eta", "expires"):
            if hasattr(options.get(name), "tzinfo"):
                options[name] -= skipped
        send_run(app, entry, options)
