"""The journal: delayed messages in an SQL database beside Redis, for what is due late, and for a Redis that is lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_ext.journal.journal import Journal
    from celery_ext.journal.store import JournaledStore
    from celery_ext.journal.worker import JournalWorker

__all__ = ["Journal", "JournalWorker", "JournaledStore"]

#: Modules of these names, which are imported at first use: they need SQLAlchemy, and what other rooms ask for does not.
_MODULES = {"Journal": "journal", "JournalWorker": "worker", "JournaledStore": "store"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
