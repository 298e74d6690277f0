"""Where the entries of an app come from: its settings, or the tables of django-celery-beat."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery.beat import Scheduler as StockScheduler

from celery_ext.periodic.entries import Entries, Source, checked


class Settings:
    """The entries of ``beat_schedule`` and ``add_periodic_task``, with the default ones of Celery."""

    changes = False

    def __init__(self, app: Any) -> None:
        self._app = app
        self._is_read = False

    def read(self) -> Entries | None:
        """Returns the entries at the first call, then None."""
        if self._is_read:
            return None
        self._is_read = True
        return checked(self._app, dict(self._given()))

    def note(self, runs: Mapping[Any, Sequence[int]], now_ms: float) -> None:
        """Notes nothing: Redis knows the last run."""

    def overwritten(self) -> list[str]:
        """Returns nothing: there is one source alone."""
        return []

    def _given(self) -> Iterator[tuple[str, Any]]:
        given = self._app.conf.beat_schedule or {}
        default = StockScheduler(self._app, lazy=True)
        default.install_default_entries(given)
        yield from {**default.schedule, **given}.items()


def source_of(app: Any) -> Source:
    """Returns where the entries of an app come from: the tables of django-celery-beat if that is its scheduler."""
    scheduler = str(app.conf.beat_scheduler)
    if scheduler == "django" or scheduler.startswith("django_celery_beat."):
        from celery_ext.periodic.database import EntryTables  # needs Django, set up

        return EntryTables(app)
    return Settings(app)
