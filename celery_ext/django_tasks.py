"""A backend for ``django.tasks`` of Django 6: tasks of Django run in Celery workers, and wait in the broker.

``TASKS = {"default": {"BACKEND": "celery_ext.django_tasks.CeleryBackend", "OPTIONS": {"app": "shop.celery:app"}}}``
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from traceback import format_exception
from typing import Any

from celery import Celery, current_app, shared_task, states
from celery.app.task import Context
from celery.app.utils import find_app
from celery.backends.base import DisabledBackend
from celery.utils import uuid
from celery.utils.time import maybe_iso8601, maybe_make_aware
from django.core import checks
from django.tasks import DEFAULT_TASK_QUEUE_NAME
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from celery_ext.waiting import control

#: The largest and the least priority of Django's; those of Redis, where 0 runs first.
MOST, LEAST, LAST = 100, -100, 9
#: What Django calls the states of Celery; all others are those of a task that has not begun.
_STATUS = {
    states.STARTED: TaskResultStatus.RUNNING,
    states.SUCCESS: TaskResultStatus.SUCCESSFUL,
    states.FAILURE: TaskResultStatus.FAILED,
    states.REVOKED: TaskResultStatus.FAILED,
    states.REJECTED: TaskResultStatus.FAILED,
}
_OPTIONS = ("app", "task")
#: The tasks of Django that this process knows, as they were defined, by the names of their tasks of Celery.
_TASKS: dict[str, Task] = {}


def priority_of(given: int, usual: int) -> int | None:
    """Returns the priority of a message, 0 to 9, of which 0 runs first; None for that of the app.

    Args:
        given: Priority of a task of Django, -100 to 100, of which 100 runs first.
        usual: ``task_default_priority`` of the app. Above 0 it leaves room for tasks that run sooner.
    """
    if given == 0:
        return None
    room = usual if given > 0 else LAST - usual
    steps = -(-abs(given) * room // MOST)  # the smallest one is a step, where there is one
    return usual - steps if given > 0 else usual + steps


class CeleryBackend(BaseTaskBackend):
    """Sends tasks of Django to Celery workers.

    Each task of Django becomes a task of Celery of the same name, ``orders.tasks.remind``, in each process that imports
    it. ``OPTIONS`` may have ``app``, the Celery app, such as ``shop.celery:app``, by default the current one; and
    ``task``, options of all tasks as ``app.task`` takes them, such as ``acks_late`` and ``dead_letter_queue``.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    @cached_property
    def app(self) -> Celery:
        """The Celery app."""
        given = self.options.get("app")
        found: Celery = find_app(given) if isinstance(given, str) else given or current_app._get_current_object()
        return found

    @property
    def supports_get_result(self) -> bool:
        """Whether the app keeps results, and with them their tasks and arguments: ``result_extended``."""
        return not isinstance(self.app.backend, DisabledBackend) and bool(self.app.conf.result_extended)

    def validate_task(self, task: Task) -> None:
        """Checks a task, and lets workers know it. Django calls this when it is defined.

        Raises:
            django.tasks.exceptions.InvalidTask: It cannot be executed.
        """
        super().validate_task(task)
        if task.module_path not in _TASKS:
            _TASKS[task.module_path] = task
            # Whatever app there is or will be: the task may be defined before the app is made.
            shared_task(name=task.module_path, bind=True, **self.options.get("task", {}))(_body(task, type(self)))

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Sends a task.

        Returns:
            Its result, with the id of the Celery task. ``cancel``, ``reschedule`` and all else take this id.

        Raises:
            django.tasks.exceptions.InvalidTask: It cannot be executed.
            TypeError: The arguments cannot be written as JSON.
        """
        self.validate_task(task)
        now = timezone.now()
        result = _result(task, uuid(), normalize_json(list(args)), normalize_json(dict(kwargs)), enqueued_at=now)
        if self.supports_get_result:
            # Before a worker has it: until it ends, only this tells that there is such a task.
            request = Context(task=task.module_path, args=result.args, kwargs=result.kwargs, id=result.id)
            self.app.backend.store_result(result.id, None, states.PENDING, request=request)
        self.app.tasks[task.module_path].apply_async(
            result.args, result.kwargs, task_id=result.id, **self._options_of(task)
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Returns the result of a task; two round trips at most.

        Raises:
            django.tasks.exceptions.TaskResultDoesNotExist: No such task waits, and its result was not kept or has
                expired.
            NotImplementedError: The app keeps no results, or not their tasks.
        """
        if not self.supports_get_result:
            raise NotImplementedError("Set result_backend and result_extended of the Celery app to retrieve results.")
        meta = self.app.backend.get_task_meta(result_id)
        task = _TASKS.get(meta.get("name") or "")
        if task is None:
            return self._waiting(result_id)
        args, kwargs = list(meta.get("args") or ()), dict(meta.get("kwargs") or {})
        status = _STATUS.get(meta["status"], TaskResultStatus.READY)
        worker, tries = meta.get("worker"), (meta.get("retries") or 0) + 1
        result = _result(task, result_id, args, kwargs, status=status, workers=[worker] * tries if worker else [])
        if status is TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", meta["result"])
        elif status is TaskResultStatus.FAILED:
            result.errors.append(_error(meta["result"], meta.get("traceback")))
        if result.is_finished:
            object.__setattr__(result, "finished_at", _moment(meta.get("date_done")))
        return result

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Yields what is wrong with the settings, for ``manage.py check``."""
        yield from super().check(**kwargs)
        if unknown := sorted(self.options.keys() - set(_OPTIONS)):
            yield checks.Error(f"TASKS[{self.alias!r}] has unknown OPTIONS: {', '.join(unknown)}", id="delayq.E100")
        if not isinstance(self.app.backend, DisabledBackend) and not self.app.conf.result_extended:
            yield checks.Info(
                f"TASKS[{self.alias!r}] cannot retrieve results, because Celery does not keep of which task they are",
                hint="set CELERY_RESULT_EXTENDED = True",
                id="delayq.I100",
            )

    def _options_of(self, task: Task) -> dict[str, Any]:
        """Returns the options of a call. The default queue of Django is whatever Celery's routing says."""
        options: dict[str, Any] = {}
        if task.run_after is not None:
            aware = timezone.is_aware(task.run_after)
            options["eta"] = task.run_after if aware else timezone.make_aware(task.run_after)
        if task.queue_name != DEFAULT_TASK_QUEUE_NAME:
            options["queue"] = task.queue_name
        priority = priority_of(task.priority, self.app.conf.task_default_priority or 0)
        return options if priority is None else {**options, "priority": priority}

    def _waiting(self, task_id: str) -> TaskResult:
        """Returns the result of a task that waits for its time, whose first state has expired meanwhile."""
        waiting = control.get(self.app, task_id)
        task = None if waiting is None else _TASKS.get(waiting.name or "")
        if waiting is None or task is None:
            raise TaskResultDoesNotExist(task_id)
        return _result(task, task_id, list(waiting.args or ()), dict(waiting.kwargs or {}))


def _body(task: Task, sender: type[CeleryBackend]) -> Any:
    """Returns what a worker runs for a task of Django; ``sender`` is that of the signals."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        request, now = self.request, timezone.now()
        workers = [request.hostname] * (request.retries + 1)
        result = _result(
            task, request.id, list(args), kwargs, status=TaskResultStatus.RUNNING, workers=workers, started_at=now
        )
        task_started.send(sender, task_result=result)
        try:
            given = (TaskContext(task_result=result), *args) if task.takes_context else args
            returned = normalize_json(task.call(*given, **kwargs))
        except Exception as error:
            result.errors.append(_error(error, "".join(format_exception(error))))
            _finish(result, TaskResultStatus.FAILED)
            task_finished.send(sender, task_result=result)
            raise
        object.__setattr__(result, "_return_value", returned)
        _finish(result, TaskResultStatus.SUCCESSFUL)
        task_finished.send(sender, task_result=result)
        return returned

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(run, name, getattr(task.func, name))
    return run


def _finish(result: TaskResult, status: TaskResultStatus) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())


def _result(
    task: Task,
    result_id: str,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    status: TaskResultStatus = TaskResultStatus.READY,
    workers: Sequence[str] = (),
    enqueued_at: Any = None,
    started_at: Any = None,
) -> TaskResult:
    return TaskResult(
        task=task,
        id=result_id,
        status=status,
        enqueued_at=enqueued_at,
        started_at=started_at,
        last_attempted_at=started_at,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=list(workers),
    )


def _error(error: Any, traceback: str | None) -> TaskError:
    kind = type(error)
    return TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=traceback or repr(error))


def _moment(given: Any) -> Any:
    """Returns when a task was done, which Celery keeps in UTC, as a text or a datetime."""
    found = maybe_iso8601(given)
    return found and maybe_make_aware(found)
