"""Types for type checkers: the options of calls and of tasks, and a class of tasks whose calls take our options."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import celery

from kombu_delayq.message import IfWaiting

if TYPE_CHECKING:
    import kombu
    from celery.canvas import Signature
    from celery.result import AsyncResult

    from celery_ext.delays import DelayChain


__all__ = ["CallOptions", "SharedOptions", "Task", "TaskOptions"]


class SharedOptions(TypedDict, total=False):
    """Options that many calls of a task may share: those of ``send_many``.

    Attributes:
        delay_chain: Retry schedule of the calls, a ``DelayChain`` or its text, such as ``4m,10m,1h``.
        delay_level: A level of the table ``delayq_levels``, instead of ``countdown`` or ``eta``.
        if_waiting: What happens where the key or the task id waits already.
        limit: The key of the calls' limit, such as ``account:7``; empty for none.
    """

    delay_chain: "DelayChain | str | None"
    delay_level: int | None
    if_waiting: IfWaiting | None
    limit: str | None
    countdown: float | None
    eta: datetime | str | None
    expires: float | datetime | str | None
    queue: "kombu.Queue | str | None"
    exchange: "kombu.Exchange | str | None"
    exchange_type: str | None
    routing_key: str | None
    priority: int | None
    delivery_mode: int | str | None
    serializer: str | None
    compression: str | None
    headers: Mapping[str, Any] | None
    stamped_headers: Sequence[str] | None
    link: "Signature[Any] | Sequence[Signature[Any]] | None"
    link_error: "Signature[Any] | Sequence[Signature[Any]] | None"
    shadow: str | None
    retry: bool
    retry_policy: Mapping[str, Any] | None
    time_limit: float | None
    soft_time_limit: float | None
    ignore_result: bool
    argsrepr: str
    kwargsrepr: str
    group_id: str | None
    root_id: str | None
    parent_id: str | None
    reply_to: str | None
    correlation_id: str | None


class CallOptions(SharedOptions, total=False):
    """Options of one call: those of ``apply_async`` and ``asend``.

    Attributes:
        waiting_key: What ``if_waiting`` looks for, instead of a key made of the arguments.
    """

    task_id: str | None
    waiting_key: str | None
    producer: "kombu.Producer | None"
    connection: "kombu.Connection | None"
    router: Any
    add_to_parent: bool
    result_cls: Any
    chain: Any
    chord: Any
    group_index: int | None
    replaced_task_nesting: int


class TaskOptions(TypedDict, total=False):
    """What a task declares for us: ``@app.task(**TaskOptions(delay_chain="4m,10m"))``.

    Attributes:
        delay_chain: Retry schedule, a ``DelayChain`` or its text, such as ``4m,10m,1h``.
        dead_letter_queue: Name of the queue that gets the message when the task has failed for good.
        dead_letter_on: When the message goes there.
        waiting_key: Names of arguments that make the key of a call.
        if_waiting: What happens where the key or the task id waits already.
        limit: The name of a limit, or that and names of arguments that make the key.
    """

    delay_chain: "DelayChain | str"
    dead_letter_queue: str
    dead_letter_on: Literal["exhausted", "failure"]
    waiting_key: Sequence[str]
    if_waiting: IfWaiting
    limit: str | Sequence[str]


if TYPE_CHECKING:

    class _Task(celery.Task[..., Any]):
        def apply_async(
            self,
            args: Sequence[Any] | None = None,
            kwargs: Mapping[str, Any] | None = None,
            **options: Unpack[CallOptions],
        ) -> AsyncResult[Any]: ...

else:
    _Task = celery.Task


class Task(_Task):
    """Celery's class of tasks; to a type checker its calls take ``delay_chain``, ``limit`` and all others.

    ``app = Celery("shop", task_cls=Task)`` gives it to all tasks of an app.
    """

    abstract = True
