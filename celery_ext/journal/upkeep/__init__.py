"""What an operator does with a journal: fills a Redis that has lost its data, compares both sides, and trims."""

from celery_ext.journal.upkeep.check import Checked, Looked, check, look
from celery_ext.journal.upkeep.restore import OVERDUE, Restored, restore
from celery_ext.journal.upkeep.trim import trim

__all__ = ["OVERDUE", "Checked", "Looked", "Restored", "check", "look", "restore", "trim"]
