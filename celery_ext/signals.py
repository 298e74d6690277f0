"""Signals beside those of Celery."""

from celery.utils.dispatch import Signal

#: A task has failed after the last step of its delay chain. The sender is the task. The arguments are task_id, request,
#: chain (a DelayChain) and exception (the one that ``retry`` got, a WorkerLostError, or None). The process that ran the
#: task sends the signal before the task fails; if that process was lost, the worker's main process sends it.
delay_chain_exhausted = Signal(
    name="delay_chain_exhausted", providing_args={"task_id", "request", "chain", "exception"}
)
