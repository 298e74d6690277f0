"""The entries of django-celery-beat: its tables, with its admin, in place of its ``DatabaseScheduler``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import inf
from typing import Any

from celery.schedules import maybe_schedule
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections
from django.db.models import F
from django_celery_beat.models import PeriodicTask, PeriodicTasks
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry
from kombu.exceptions import OperationalError

from celery_ext.periodic.entries import Entries, Entry, checked
from celery_ext.periodic.times import whole_ms
from kombu_delayq.message import in_utc, moment_of


class EntryTables:
    """The entries of the tables. Only the process that arms reads them.

    As with the ``DatabaseScheduler``, entries of ``beat_schedule`` are copied into the tables at the start, and
    changes in the admin hold at once.

    Args:
        app: The app.
    """

    changes = True

    def __init__(self, app: Any) -> None:
        self._app = app
        self._changed: Any = None
        self._is_copied = False
        #: Time of the last run that the table or this process has noted, and the row, by its key.
        self._rows: dict[Any, tuple[int, Any]] = {}

    def read(self) -> Entries | None:
        """Returns the entries if the tables have changed since the last call, else None."""
        with _usable():
            if not self._is_copied:
                DatabaseScheduler(app=self._app, lazy=True).setup_schedule()
                self._is_copied = True
            changed = PeriodicTasks.last_change()
            if self._rows and changed == self._changed:
                return None
            rows = PeriodicTask.objects.select_related("interval", "crontab", "solar", "clocked")
            # ``ModelEntry`` makes up a last run for those that have none.
            last = {row: _ms(row.last_run_at) for row in rows}
            # A row that is saved while it is disabled loses its last run.
            noted = {key: last_ms for key, (last_ms, _) in self._rows.items()}
            self._rows = {row.pk: (max(last_ms or 0, noted.get(row.pk, 0)), row) for row, last_ms in last.items()}
            given = {row.name: self._entry(row, last_ms) for row, last_ms in last.items()}
            self._changed = changed
        return checked(self._app, given)

    def note(self, runs: Mapping[Any, Sequence[int]], now_ms: float) -> None:
        """Writes ``last_run_at`` and ``total_run_count``, and disables what has ended.

        Args:
            runs: By key of the row, the times of the runs that have begun lately, ms since the epoch, in order.
            now_ms: Redis's clock.
        """
        with _usable():
            for key, (noted_ms, row) in list(self._rows.items()):
                last_ms = min(noted_ms, int(now_ms))  # the clock may have gone back
                self._rows[key] = last_ms, row
                new = [at_ms for at_ms in runs.get(key, ()) if at_ms > last_ms]
                values: dict[str, Any] = {}
                if new:
                    values = {"total_run_count": F("total_run_count") + len(new)}
                    values |= {"last_run_at": _moment(new[-1])} if row.enabled else {}
                    self._rows[key] = new[-1], row
                has_ended = (new and row.one_off) or (_ms(row.expires) or inf) <= now_ms
                if has_ended and row.enabled:
                    row.enabled = False
                    values |= {"enabled": False, **({"total_run_count": 0} if row.one_off else {})}
                if values:
                    PeriodicTask.objects.filter(pk=key).update(**values)
                if "enabled" in values:
                    PeriodicTasks.update_changed()

    def overwritten(self) -> list[str]:
        """Returns the names of rows that are not as ``beat_schedule`` has them, in order.

        As with the ``DatabaseScheduler``, they become so when a process begins to arm.
        """
        given = {name: entry for name, entry in (self._app.conf.beat_schedule or {}).items() if type(entry) is dict}
        with _usable():
            rows = PeriodicTask.objects.filter(name__in=list(given)).order_by("name")
            return [row.name for row in rows if _differs(row, given[row.name])]

    def _entry(self, row: Any, last_ms: int | None) -> Entry | Exception:
        try:
            model = ModelEntry(row, app=self._app)
        except Exception as error:  # of one row; the others run
            return error
        given = (self._app.conf.beat_schedule or {}).get(row.name) or {}
        ours = given.get("options") or {} if isinstance(given, Mapping) else {}
        options = dict(model.options)
        if ours.get("expires") == "next" and "expires" not in options:
            options["expires"] = "next"
        return Entry(
            row.name,
            row.task,
            model.schedule,
            model.args,
            model.kwargs,
            options,
            ours.get("missed", "last"),
            is_on=row.enabled,
            start_ms=_ms(row.start_time),
            end_ms=_ms(row.expires),
            one_off=row.one_off,
            last_ms=last_ms,
            row=row.pk,
        )


class _Unsaved(ModelEntry):
    """Turns an entry into fields of a row, as its class does, and writes nothing."""

    @classmethod
    def to_model_schedule(cls, schedule: Any) -> tuple[Any, str]:
        """Returns the row of a schedule, which has no key if there is none, and the name of its field."""
        schedule = maybe_schedule(schedule)
        for kind, model, field in cls.model_schedules:
            if isinstance(schedule, kind):
                return model.from_schedule(schedule), field
        raise ValueError(f"no row can have the schedule {schedule!r}")


def _differs(row: PeriodicTask, entry: Mapping[str, Any]) -> bool:
    try:
        fields = _Unsaved._unpack_fields(**entry)
    except (TypeError, ValueError):  # it is wrong, and nothing becomes of it
        return False
    return any(getattr(row, name) != value for name, value in fields.items())


def _moment(at_ms: int) -> datetime:
    """Returns a time as the tables have it: without a zone it is in UTC, as with the ``DatabaseScheduler``."""
    return moment_of(at_ms) if settings.USE_TZ else moment_of(at_ms).replace(tzinfo=None)


def _ms(moment: Any) -> int | None:
    return None if moment is None else whole_ms(in_utc(moment))


@contextmanager
def _usable() -> Iterator[None]:
    """Lets the block use the database from a thread that lives long, and raises an error that outages have."""
    close_old_connections()
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        raise OperationalError(f"the database of django-celery-beat: {error}") from error
    finally:
        close_old_connections()
