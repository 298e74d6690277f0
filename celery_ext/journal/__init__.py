"""The journal: delayed messages in an SQL database beside Redis, for what is due late, and for a Redis that is lost."""

from celery_ext.journal.database import parse_url, shown
from celery_ext.journal.deadlines import DATABASE_ERRORS, error_in_words
from celery_ext.journal.journal import Journal
from celery_ext.journal.leadership import NotLeading, notice
from celery_ext.journal.recovery import Checked, check, count_noted, find_missing, restore
from celery_ext.journal.state import JournalState, Loss, fault_of, leader_elsewhere, state_of
from celery_ext.journal.store import JournaledStore
from celery_ext.journal.worker import JournalWorker

__all__ = [
    "DATABASE_ERRORS",
    "Checked",
    "Journal",
    "JournalState",
    "JournalWorker",
    "JournaledStore",
    "Loss",
    "NotLeading",
    "check",
    "count_noted",
    "error_in_words",
    "fault_of",
    "find_missing",
    "leader_elsewhere",
    "notice",
    "parse_url",
    "restore",
    "shown",
    "state_of",
]
