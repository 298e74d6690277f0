"""Single checks of ``delayq doctor``, on an app or a store."""

from typing import Any

from celery import Celery

from celery_ext.doctor import Finding, all_checks
from celery_ext.doctor.subject import Subject
from kombu_delayq.store import DelayStore

DOTTED = "kombu_delayq.transport:Transport"


def app_with(**conf: Any) -> Celery:
    """Makes an app on our transport, with some settings."""
    app = Celery("shop", set_as_current=False)
    app.conf.update({"broker_url": "redis://localhost:1/0", "broker_transport": DOTTED, **conf})
    return app


def look(check: str, app: Celery | None = None, store: DelayStore | None = None) -> list[Finding]:
    """Makes a check. Returns what it finds."""
    [found] = [each for each in all_checks() if each.name == check]
    return list(found.look(Subject(app, store)))


def levels(findings: list[Finding]) -> list[str]:
    """Returns how bad each finding is."""
    return [str(finding.level) for finding in findings]
