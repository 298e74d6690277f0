"""Tasks that wait: found by id, by due time or by a filter; cancelled, rescheduled or run, one by one or many at once.

All here works on a store, and needs no app. The modules ``revoke``, which also knows the results of tasks, ``control``
and ``select`` need one: they are imported by their names, so that a process without an app loads nothing of them.
"""

from celery_ext.waiting import by_id
from celery_ext.waiting.bulk import (
    ActionName,
    Bulk,
    BulkAction,
    BulkOutcome,
    Snapshot,
    audited_bulk,
    take_snapshot,
)
from celery_ext.waiting.by_id import Cancelled, Only, Outcome
from celery_ext.waiting.delayed_task import READABLE, DelayedTask
from celery_ext.waiting.elsewhere import Elsewhere, Sighting, places
from celery_ext.waiting.known import LONG_LOOK_S, all_queues
from celery_ext.waiting.pausing import pause_queue, resume_queue
from celery_ext.waiting.search import Done, Progress, Skipped, TaskPage, search_page, search_tasks, sizes_of
from celery_ext.waiting.selection import Argument, Selection

__all__ = [
    "LONG_LOOK_S",
    "READABLE",
    "ActionName",
    "Argument",
    "Bulk",
    "BulkAction",
    "BulkOutcome",
    "Cancelled",
    "DelayedTask",
    "Done",
    "Elsewhere",
    "Only",
    "Outcome",
    "Progress",
    "Selection",
    "Sighting",
    "Skipped",
    "Snapshot",
    "TaskPage",
    "all_queues",
    "audited_bulk",
    "by_id",
    "pause_queue",
    "places",
    "resume_queue",
    "search_page",
    "search_tasks",
    "sizes_of",
    "take_snapshot",
]
