"""What kombu-delayq adds for the users of Celery: delay chains, delay levels, and a hand on tasks that wait."""

from celery_ext.chains import DelayChain
from celery_ext.control import browse, cancel, count, get, reschedule, run_now
from celery_ext.delayed_task import DelayedTask
from celery_ext.install import install
from celery_ext.levels import DelayLevels
from celery_ext.signals import delay_chain_exhausted

__all__ = [
    "DelayChain",
    "DelayLevels",
    "DelayedTask",
    "browse",
    "cancel",
    "count",
    "delay_chain_exhausted",
    "get",
    "install",
    "reschedule",
    "run_now",
]
