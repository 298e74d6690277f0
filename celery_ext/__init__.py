"""What kombu-delayq adds for Celery: delay chains and levels, many calls at once, control over waiting tasks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_ext.dead_letters import DeadLetter, DeadLetters
    from celery_ext.delays import DelayChain, DelayLevels, delay_chain_exhausted
    from celery_ext.limits import Backoff
    from celery_ext.publish import Call, ShardRouter, aclose, asend, asend_many, send_many
    from celery_ext.stopping import TaskCancelled, cancelled, check_cancelled
    from celery_ext.waiting import DelayedTask
    from celery_ext.waiting.control import cancel, get, reschedule, run_now
    from celery_ext.waiting.select import Selected, browse, count, select
    from celery_ext.worker.bootstrap import install

__all__ = [
    "Backoff",
    "Call",
    "DeadLetter",
    "DeadLetters",
    "DelayChain",
    "DelayLevels",
    "DelayedTask",
    "Selected",
    "ShardRouter",
    "TaskCancelled",
    "aclose",
    "asend",
    "asend_many",
    "browse",
    "cancel",
    "cancelled",
    "check_cancelled",
    "count",
    "delay_chain_exhausted",
    "get",
    "install",
    "reschedule",
    "run_now",
    "select",
    "send_many",
]

#: Where each name is. It is imported when it is first used: pytest imports this package at its start in every project.
_MODULES = {
    "aclose": "celery_ext.publish",
    "asend": "celery_ext.publish",
    "asend_many": "celery_ext.publish",
    "Backoff": "celery_ext.limits",
    "browse": "celery_ext.waiting.select",
    "Call": "celery_ext.publish",
    "cancel": "celery_ext.waiting.control",
    "cancelled": "celery_ext.stopping",
    "check_cancelled": "celery_ext.stopping",
    "count": "celery_ext.waiting.select",
    "DeadLetter": "celery_ext.dead_letters",
    "DeadLetters": "celery_ext.dead_letters",
    "delay_chain_exhausted": "celery_ext.delays.task",
    "DelayChain": "celery_ext.delays.chain",
    "DelayedTask": "celery_ext.waiting.delayed_task",
    "DelayLevels": "celery_ext.delays.levels",
    "get": "celery_ext.waiting.control",
    "install": "celery_ext.worker.bootstrap",
    "reschedule": "celery_ext.waiting.control",
    "run_now": "celery_ext.waiting.control",
    "select": "celery_ext.waiting.select",
    "Selected": "celery_ext.waiting.select",
    "send_many": "celery_ext.publish",
    "ShardRouter": "celery_ext.publish",
    "TaskCancelled": "celery_ext.stopping",
}


def __getattr__(name: str) -> Any:
    try:
        module = _MODULES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
