"""Periodic tasks without a beat: any worker arms the next runs of each entry as delayed messages."""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from celery import Celery
from celery.signals import task_received

from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.periodic.armer import Armer
    from celery_ext.periodic.entries import Entry
    from celery_ext.periodic.messages import options_of, send_run
    from celery_ext.periodic.scheduler import Scheduler
    from celery_ext.periodic.source import Settings
    from celery_ext.periodic.store import PeriodicStore
    from celery_ext.periodic.times import next_ms

__all__ = [
    "Entry",
    "PeriodicStore",
    "Scheduler",
    "Settings",
    "declare_periodic",
    "is_periodic",
    "next_ms",
    "options_of",
    "send_run",
    "start_armer",
    "stop_armer",
]

#: Where the names are that are imported when they are first used: they bring in Celery's beat.
_LATER = {
    "Entry": "entries",
    "PeriodicStore": "store",
    "Scheduler": "scheduler",
    "Settings": "source",
    "next_ms": "times",
    "options_of": "messages",
    "send_run": "messages",
}
#: Apps whose workers arm their entries.
_declared: WeakSet[Celery] = WeakSet()
#: What arms the entries of each worker's consumer.
_armers: "WeakKeyDictionary[Celery, Armer]" = WeakKeyDictionary()


def declare_periodic(app: Celery) -> None:
    """Lets workers of an app arm the entries of its schedule."""
    _declared.add(getattr(app, "_get_current_object", lambda: app)())


def is_periodic(app: Celery) -> bool:
    """Whether workers of an app arm the entries of its schedule."""
    return getattr(app, "_get_current_object", lambda: app)() in _declared


def start_armer(sender: Any, **kwargs: Any) -> None:
    """Receives the signal ``worker_ready``, and begins to arm if the worker's app wants it."""
    in_test = type(sender.controller).__module__.startswith("celery.contrib.testing")  # the clock of the test arms
    if is_periodic(sender.app) and sender.app not in _armers and not in_test:
        from celery_ext.periodic.armer import Armer
        from celery_ext.periodic.source import source_of

        armer = _armers[sender.app] = Armer(sender.app, source_of(sender.app))
        armer.start()
        task_received.connect(_look_at, weak=False, dispatch_uid="delayq-stock-beat")


def _look_at(sender: Any, request: Any, **kwargs: Any) -> None:
    armer = _armers.get(sender.app)
    if armer is not None:
        armer.look_at(request)


def stop_armer(sender: Any, **kwargs: Any) -> None:
    """Receives the signal ``worker_shutdown``, and gives the lease back."""
    armer = _armers.pop(sender.app, None)
    if armer is not None:
        armer.stop()


__getattr__ = later(__name__, _LATER)
