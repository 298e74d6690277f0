"""Sends the calls of a Django app when the transaction commits: the setting ``delayq_send_on_commit``."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from celery.utils import uuid
from kombu.serialization import dumps

from kombu_delayq.message import DEAD_LETTER, argument

#: The app's setting. Without it, calls are sent at once, as Celery does.
SETTING = "delayq_send_on_commit"
#: Options that the later call leaves out: the caller has given back what they name when the transaction commits.
OF_THE_MOMENT = ("producer", "publisher", "connection")

#: Whether the call is that of a task which replaces itself.
is_replacing: ContextVar[bool] = ContextVar("task_replaces_itself", default=False)


def waits_for_commit(options: Mapping[str, Any]) -> bool:
    """Whether a call is made within a transaction of Django's default database.

    A retry, a dead letter and a replacement are sent at once: the error that leads to them, or that ``replace`` raises,
    rolls the transaction back.
    """
    from django.db import transaction  # an app without Django has no such setting

    is_consequence = bool(options.get("retries")) or DEAD_LETTER in options or is_replacing.get()
    return not is_consequence and transaction.get_connection().in_atomic_block


def send_on_commit(app: Any, send: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Sends a call when the transaction commits, and never if it is rolled back.

    Args:
        app: The app.
        send: Gets ``args`` and the options then.
        args: Positional arguments of ``send_task``.
        options: Its other arguments.

    Returns:
        The result that the call will have.

    Raises:
        kombu.exceptions.EncodeError: The arguments cannot be written. On commit, this error would keep the calls behind
            this one from being sent.
    """
    from django.db import transaction

    serializer = options.get("serializer") or app.conf.task_serializer
    dumps((argument("args", args, options), argument("kwargs", args, options)), serializer)

    task_id = argument("task_id", args, options)
    if task_id is None:
        task_id = options["task_id"] = uuid()
    later = {name: value for name, value in options.items() if name not in OF_THE_MOMENT}
    result = (options.get("result_cls") or app.AsyncResult)(task_id)
    result.ignored = options.get("ignore_result")

    def send_now() -> None:
        sent = send(*args, **later)
        result.id = sent.id  # of what waits, where it keeps this call out
        result.if_waiting = getattr(sent, "if_waiting", None)

    transaction.on_commit(send_now)
    return result
