"""A task that only those workers know whose setting ``imports`` names this module: as in a deploy that is under way."""

from typing import Any

from celery import shared_task
from proj import note


@shared_task(bind=True, name="proj.later")
def later(self: Any, value: Any = None) -> Any:
    """Notes that it ran; returns its argument."""
    note(self, value=value)
    return value
