"""The journal: delayed messages in an SQL database beside Redis, for what is due late, and for a Redis that is lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_ext.journal.database import parse_url, shown
    from celery_ext.journal.journal import Journal
    from celery_ext.journal.leadership import NotLeading, notice
    from celery_ext.journal.recovery import Checked, check, count_noted, find_missing, restore
    from celery_ext.journal.state import JournalState, Loss, fault_of, leader_elsewhere, state_of
    from celery_ext.journal.store import JournaledStore
    from celery_ext.journal.worker import JournalWorker

__all__ = [
    "Checked",
    "Journal",
    "JournalState",
    "JournalWorker",
    "JournaledStore",
    "Loss",
    "NotLeading",
    "check",
    "count_noted",
    "fault_of",
    "find_missing",
    "leader_elsewhere",
    "notice",
    "parse_url",
    "restore",
    "shown",
    "state_of",
]

#: Modules of these names, which are imported at first use: most need SQLAlchemy, and the names of keys do not.
_MODULES = {
    "parse_url": "database",
    "shown": "database",
    "Journal": "journal",
    "NotLeading": "leadership",
    "notice": "leadership",
    "Checked": "recovery",
    "check": "recovery",
    "count_noted": "recovery",
    "find_missing": "recovery",
    "restore": "recovery",
    "JournalState": "state",
    "Loss": "state",
    "fault_of": "state",
    "leader_elsewhere": "state",
    "state_of": "state",
    "JournaledStore": "store",
    "JournalWorker": "worker",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
