"""Dead letters: tasks that failed for good, how they are buried, read, replayed and dropped."""

from celery_ext.dead_letters import letters, routes
from celery_ext.dead_letters.burying import SETTING, bury, check_occasion, reason_of
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.control import DeadLetters
from celery_ext.dead_letters.letters import DeadLetter

__all__ = ["SETTING", "Choice", "DeadLetter", "DeadLetters", "bury", "check_occasion", "letters", "reason_of", "routes"]
