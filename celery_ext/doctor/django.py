"""A system check for Django: add ``celery_ext.doctor.django.DoctorConfig`` to ``INSTALLED_APPS``.

Those that connect to nothing are made by every ``manage.py check``, and so by ``runserver`` and ``migrate``; all others
with ``--deploy``, where a broker can be expected.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from celery import Celery, _state
from celery.app.utils import find_app
from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from celery_ext.doctor.check import APP, Check
from celery_ext.doctor.checks import all_checks
from celery_ext.doctor.examination import examine_app
from celery_ext.doctor.finding import Finding, id_of
from celery_ext.health import Level

TAG = "delayq"
#: What Django calls a finding of a level. ``manage.py check`` fails for errors; with ``--fail-level`` for others, too.
_MESSAGES = {Level.NOTICE: checks.Info, Level.WARNING: checks.Warning, Level.ERROR: checks.Error}


class DoctorConfig(AppConfig):
    """Adds the doctor's checks to ``manage.py check``, under the tag ``delayq``. It has no models and no URLs."""

    name = "celery_ext.doctor.django"
    label = "delayq_doctor"
    verbose_name = "kombu-delayq"

    def ready(self) -> None:
        """Registers the checks; a second call changes nothing."""
        checks.register(check_settings, TAG)
        checks.register(check_broker, TAG, deploy=True)


def check_settings(app_configs: object = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Makes the checks of the Celery app that connect to nothing."""
    return _messages([check for check in all_checks() if check.needs == APP])


def check_broker(app_configs: object = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Makes the checks that need Redis or workers."""
    return _messages([check for check in all_checks() if check.needs != APP])


def _messages(made: Sequence[Check]) -> list[checks.CheckMessage]:
    try:
        app = _celery_app()
    except LookupError as error:
        level = Level.WARNING if _given() is None else Level.ERROR
        missing = Finding(level, str(error), 'set DELAYQ_APP = "proj.celery:app"', check="app")
        return list(_as_django([missing]))
    return list(_as_django(examine_app(app, made)))


def _celery_app() -> Celery:
    """Returns the app that the setting ``DELAYQ_APP`` names, by its path or itself; without it, the only one there is.

    Celery's ``current_app`` is that of a thread, and ``runserver`` makes checks in a thread of its own.

    Raises:
        LookupError: No app is named, and there is none or more than one; or what is named is no app.
    """
    given = _given()
    if given is not None:
        try:
            named = find_app(given) if isinstance(given, str) else given
        except (ImportError, AttributeError) as error:
            raise LookupError(f"DELAYQ_APP = {given!r} cannot be imported: {error}") from error
        if not isinstance(named, Celery):
            raise LookupError(f"DELAYQ_APP = {given!r} names no Celery app")
        return named
    # Celery makes an app of this name where it needs one and there is none.
    found = [app for app in _state._get_active_apps() if app.main != "default"]
    if len(found) != 1:
        names = ", ".join(sorted(str(app.main) for app in found))
        raise LookupError(f"which Celery app? There are {names}" if found else "no Celery app is imported")
    [only] = found
    return only


def _given() -> Any:
    return getattr(settings, "DELAYQ_APP", None)


def _as_django(findings: Iterable[Finding]) -> Iterable[checks.CheckMessage]:
    for finding in findings:
        if finding.level in _MESSAGES:
            more = f"more: delayq doctor --explain {id_of(finding)}" if finding.page else ""
            hint = "; ".join(filter(None, (finding.do, more)))
            yield _MESSAGES[finding.level](finding.found, hint=hint or None, id=f"{TAG}.{finding.check}")
