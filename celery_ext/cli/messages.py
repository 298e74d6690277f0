"""Waiting messages as the commands print them."""

import json
from typing import Any

from celery_ext.chains import DelayChain
from celery_ext.cli.text import escaped, iso, shortened, when
from celery_ext.delayed_task import DelayedTask
from kombu_delayq.errors import InvalidDelayChain

#: Columns of a listing, and the most characters of a cell.
HEAD = ("DUE", "TASK", "ID", "QUEUE", "RETRIES", "ARGUMENTS")
CELL = 100
ARGUMENTS = 40


def as_line(value: Any) -> str:
    """Returns a value as one line of JSON; what JSON does not have, such as bytes, becomes its ``repr``."""
    try:
        return json.dumps(value, default=repr, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a number that is none
        if isinstance(value, dict):
            return f"{{{', '.join(f'{as_line(str(name))}: {as_line(each)}' for name, each in value.items())}}}"
        return json.dumps(repr(value))


def chain_of(task: DelayedTask) -> DelayChain | None:
    """Returns the retry schedule that a message has; whether a task's own counts is its worker's to know."""
    try:
        return None if task.delay_chain is None else DelayChain.parse(task.delay_chain)
    except InvalidDelayChain:
        return None


def summary(task: DelayedTask, now_ms: float) -> dict[str, Any]:
    """Returns what a listing says of a message, for JSON."""
    due_ms = task.message.due_ms
    return {
        "id": task.id,
        "task": task.name,
        "queue": task.queue,
        "due": iso(due_ms),
        "due_in_s": round((due_ms - now_ms) / 1000, 3),
        "priority": task.priority,
        "retries": task.retries,
        "delay_chain": task.delay_chain,
        "argsrepr": task.argsrepr,
        "kwargsrepr": task.kwargsrepr,
    }


def row(task: DelayedTask, chain: DelayChain | None, now_ms: float) -> list[str]:
    """Returns the cells of a listing, one for each of ``HEAD``."""
    return [
        when(task.message.due_ms, now_ms),
        cell(name_of(task)),
        cell(task.id),
        cell(task.queue),
        str(task.retries) if chain is None else f"{task.retries}/{len(chain)}",
        cell(arguments(task), ARGUMENTS),
    ]


def name_of(task: DelayedTask) -> str:
    """Returns the name of the task, or in words what is there instead."""
    if task.name is not None:
        return str(task.name)
    return "(lost)" if task.message.body is None else "(no task)"


def arguments(task: DelayedTask) -> str:
    """Returns the arguments as the task wants them shown."""
    return " ".join(text for text in (task.argsrepr, task.kwargsrepr) if text not in ("", "()", "[]", "{}"))


def cell(text: str, length: int = CELL) -> str:
    """Returns a text as it is put into a table."""
    return shortened(escaped(text[: length + 1]), length)
