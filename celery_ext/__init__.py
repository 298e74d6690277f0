"""What kombu-delayq adds for Celery: delay chains and levels, many calls at once, control over waiting tasks."""

from celery_ext.asynchronous.control import abrowse, acancel, acount, aget, areschedule, arun_now
from celery_ext.asynchronous.send import asend, asend_many
from celery_ext.asynchronous.threads import aclose
from celery_ext.bulk.send_many import send_many
from celery_ext.bulk.target import Call
from celery_ext.delays.chain import DelayChain
from celery_ext.delays.levels import DelayLevels
from celery_ext.signals import delay_chain_exhausted
from celery_ext.spreading.declared import Spread, spread
from celery_ext.waiting.control import browse, cancel, count, get, reschedule, run_now
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.worker.bootstrap import install

__all__ = [
    "Call",
    "DelayChain",
    "DelayLevels",
    "DelayedTask",
    "Spread",
    "abrowse",
    "acancel",
    "aclose",
    "acount",
    "aget",
    "areschedule",
    "arun_now",
    "asend",
    "asend_many",
    "browse",
    "cancel",
    "count",
    "delay_chain_exhausted",
    "get",
    "install",
    "reschedule",
    "run_now",
    "send_many",
    "spread",
]
