"""What `delayq doctor` looks for: settings, servers and processes that keep delayed tasks from running well."""

from celery_ext.doctor.checks import ANSWERS_S, CHECKS, Check, examine, examine_servers, examine_start
from celery_ext.doctor.finding import Finding, Level, NoSuchText, explain, id_of

__all__ = [
    "ANSWERS_S",
    "CHECKS",
    "Check",
    "Finding",
    "Level",
    "NoSuchText",
    "examine",
    "examine_servers",
    "examine_start",
    "explain",
    "id_of",
]
