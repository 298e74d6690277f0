"""Dead letters: tasks that failed for good, how they are read, replayed and dropped."""

from celery_ext.dead_letters import letters, routes
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.control import DeadLetters
from celery_ext.dead_letters.letters import DeadLetter

__all__ = ["Choice", "DeadLetter", "DeadLetters", "letters", "routes"]
