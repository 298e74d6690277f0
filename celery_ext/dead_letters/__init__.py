"""Dead letters: tasks that failed for good, how they are buried, read, replayed and dropped."""

from celery_ext.dead_letters import letters
from celery_ext.dead_letters.burying import SETTING, bury, check_occasion, reason_of
from celery_ext.dead_letters.letters import DeadLetter

__all__ = ["SETTING", "DeadLetter", "bury", "check_occasion", "letters", "reason_of"]
