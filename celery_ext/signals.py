"""Signals beside those of Celery."""

from celery.utils.dispatch import Signal

#: A task has failed after the last step of its delay chain. Sent in the process that ran it, before the task fails, or,
#: if that process was lost, in the worker's main one; with the task as sender: task_id, request, chain (DelayChain) and
#: exception (what ``retry`` was given, or None).
delay_chain_exhausted = Signal(
    name="delay_chain_exhausted", providing_args={"task_id", "request", "chain", "exception"}
)
