"""What `delayq doctor` looks for: settings, servers and processes that keep delayed tasks from running well."""

from celery_ext.doctor.alerts import Alert, all_alerts
from celery_ext.doctor.check import APP, REDIS, Check
from celery_ext.doctor.checks import all_checks
from celery_ext.doctor.examination import ANSWERS_S, examine, examine_servers, examine_start
from celery_ext.doctor.finding import Finding, Findings, NoSuchText, counted, explain, id_of, named
from celery_ext.doctor.subject import Subject
from celery_ext.health import Level

__all__ = [
    "ANSWERS_S",
    "APP",
    "REDIS",
    "Alert",
    "Check",
    "Finding",
    "Findings",
    "Level",
    "NoSuchText",
    "Subject",
    "all_alerts",
    "all_checks",
    "counted",
    "examine",
    "examine_servers",
    "examine_start",
    "explain",
    "id_of",
    "named",
]
