"""How long tasks wait: durations, delay levels, delay chains, and the task class that follows a chain."""

from celery_ext.delays.chain import DelayChain
from celery_ext.delays.durations import MAX_S, in_words, parse
from celery_ext.delays.install import (
    extend_app,
    idle_chains,
    is_installed,
    own_tasks,
    problems,
    sends_as_celery,
    unread,
    use_fast_publisher,
)
from celery_ext.delays.levels import DEFAULT, DelayLevels, delay_of_level
from celery_ext.delays.task import LEFT_TO_CELERY, DelayChainTask, delay_chain_exhausted

__all__ = [
    "DEFAULT",
    "LEFT_TO_CELERY",
    "MAX_S",
    "DelayChain",
    "DelayChainTask",
    "DelayLevels",
    "delay_chain_exhausted",
    "delay_of_level",
    "extend_app",
    "idle_chains",
    "in_words",
    "is_installed",
    "own_tasks",
    "parse",
    "problems",
    "sends_as_celery",
    "unread",
    "use_fast_publisher",
]
