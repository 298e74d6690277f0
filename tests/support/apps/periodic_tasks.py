"""The app of ``proj.py`` with periodic entries, armed by its workers; each entry is a dict of JSON in the settings."""

from typing import Any

from celery.schedules import crontab
from proj import app

import celery_ext


def _schedule(given: Any) -> Any:
    return crontab(**given) if isinstance(given, dict) else given


app.conf.beat_schedule = {
    name: {**entry, "schedule": _schedule(entry["schedule"])}
    for name, entry in (app.conf.get("periodic_entries") or {}).items()
}
celery_ext.install(app, periodic=True)
