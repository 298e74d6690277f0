"""Waiting tasks as the API shows them."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from celery_ext.delays.chain import DelayChain
from celery_ext.serve.api.exchange import iso
from celery_ext.serve.api.models.answers import Step, Steps, Task
from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.errors import InvalidDelayChain

#: Headers with the arguments of a task.
_SHOWN_ARGUMENTS = ("argsrepr", "kwargsrepr")


def task_of(task: DelayedTask, now_ms: float, *, hidden: bool) -> Task:
    """Returns a task as the API shows it.

    Args:
        task: The task.
        now_ms: Redis's clock, ms since the epoch.
        hidden: Whether arguments are kept back.
    """
    due_ms = task.message.due_ms
    shown = Task(
        id=task.id,
        task=task.name,
        queue=task.queue,
        due=iso(due_ms),
        due_in_s=round((due_ms - now_ms) / 1000, 3),
        priority=task.priority,
        retries=task.retries,
        headers=headers_of(task.headers, hidden=hidden),
        properties=task.properties,
        delay_chain=task.delay_chain,
        steps=_steps(task),
        tier=task.tier,
    )
    if not hidden:
        shown.args, shown.kwargs = task.args, task.kwargs
        shown.argsrepr, shown.kwargsrepr = task.argsrepr, task.kwargsrepr
    else:
        shown.args = shown.kwargs = UNSET
    return shown


def headers_of(headers: Mapping[str, Any], *, hidden: bool) -> dict[str, Any]:
    """Returns the headers of a message, without the arguments in them if these are hidden."""
    return {name: value for name, value in headers.items() if not (hidden and name in _SHOWN_ARGUMENTS)}


def _steps(task: DelayedTask) -> Steps | None:
    try:
        chain = DelayChain.parse(task.delay_chain) if task.delay_chain else None
    except InvalidDelayChain:
        return None
    if chain is None:
        return None
    delays = [delay.total_seconds() for delay in chain]
    done = min(max(task.retries, 0), len(delays))
    return Steps(behind=delays[:done], ahead=list(_ahead(delays[done:], task.message.due_ms)))


def _ahead(delays: list[float], due_ms: float) -> Iterator[Step]:
    at_ms = due_ms
    for delay_s in delays:
        at_ms += delay_s * 1000
        yield Step(delay_s=delay_s, at=iso(at_ms))
