"""Dead letters: tasks that failed for good, how they are read, replayed and dropped."""

from typing import TYPE_CHECKING

from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.dead_letters.choice import Choice
    from celery_ext.dead_letters.control import DeadLetters
    from celery_ext.dead_letters.letters import LEAST_RATE, Cursor, DeadLetter, LetterAction, rate_of
    from celery_ext.dead_letters.store import Letter, LetterStore, buried_ms

__all__ = [
    "LEAST_RATE",
    "Choice",
    "Cursor",
    "DeadLetter",
    "DeadLetters",
    "Letter",
    "LetterAction",
    "LetterStore",
    "buried_ms",
    "rate_of",
]

#: Where the names are that are imported when they are first used: a transfer worker needs none but the store's.
_LATER = {
    "LEAST_RATE": "letters",
    "Choice": "choice",
    "Cursor": "letters",
    "DeadLetter": "letters",
    "DeadLetters": "control",
    "Letter": "store",
    "LetterAction": "letters",
    "LetterStore": "store",
    "buried_ms": "store",
    "rate_of": "letters",
}

__getattr__ = later(__name__, _LATER)
