"""Promotes rows of the journal to Redis before they are due, and notices a Redis that has lost its data."""

from celery_ext.journal.promotion.at_queues import OutOfOffice
from celery_ext.journal.promotion.office import notice
from celery_ext.journal.promotion.rounds import Round
from celery_ext.journal.promotion.worker import JournalWorker

__all__ = ["JournalWorker", "OutOfOffice", "Round", "notice"]
