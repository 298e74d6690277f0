"""What kombu-delayq adds for Celery: delay chains and levels, many calls at once, a hand on tasks that wait."""

from celery_ext.bulk import send_many
from celery_ext.bulk_template import Call
from celery_ext.chains import DelayChain
from celery_ext.control import browse, cancel, count, get, reschedule, run_now
from celery_ext.delayed_task import DelayedTask
from celery_ext.install import install
from celery_ext.levels import DelayLevels
from celery_ext.signals import delay_chain_exhausted

__all__ = [
    "Call",
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
    "send_many",
]
