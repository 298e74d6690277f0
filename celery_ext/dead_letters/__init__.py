"""Dead letters: tasks that failed for good, how they are read, replayed and dropped."""

from celery_ext.dead_letters import letters, routes
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.control import DeadLetters
from celery_ext.dead_letters.letters import LEAST_RATE, Cursor, DeadLetter, LetterAction, rate_of

__all__ = [
    "LEAST_RATE",
    "Choice",
    "Cursor",
    "DeadLetter",
    "DeadLetters",
    "LetterAction",
    "letters",
    "rate_of",
    "routes",
]
