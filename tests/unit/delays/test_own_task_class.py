"""Chains of tasks whose base class is the project's own."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task
from celery.app.trace import trace_task
from celery.exceptions import Reject, WorkerLostError

from celery_ext import install
from celery_ext.delays.endings import request_class
from tests.support.messages import published

CHAIN = "4m,10m*2,1h"


def fail(task: Any, retries: int = 0, **retry: Any) -> dict[str, Any]:
    """Lets a task fail in its ``retries``-th retry as a worker would see it. Returns the message of the next one."""
    task.push_request(id="i", args=(), kwargs={}, called_directly=False, retries=retries, delivery_info={})
    try:
        retried = task.retry(throw=False, **retry)
    finally:
        task.pop_request()
    assert retried.sig.options["retries"] == retries + 1
    return published(task.app)


class OwnTask(Task):
    """A base class as many projects have one, with fewer arguments than Celery's."""

    dead_letter_queue = "failed"

    def retry(self, exc: Any = None, countdown: Any = None, **options: Any) -> Any:
        """Notes who retried."""
        options["headers"] = {"retried-by": "OwnTask"}
        return super().retry(exc=exc, countdown=countdown, **options)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Has an own priority."""
        return super().apply_async(args, kwargs, **{"priority": 3, **options})


class NarrowTask(Task):
    """A base class whose retry knows two words only."""

    def retry(self, exc: Any = None, countdown: Any = None) -> Any:
        """Raises nothing."""
        return super().retry(exc=exc, countdown=countdown, throw=False)


class LoudTask(Task):
    """A base class whose ``on_failure`` fails itself; ``errors`` are what it raises."""

    errors: tuple[Exception, ...] = ()

    def on_failure(self, *args: Any) -> None:
        """Raises the next error."""
        self.errors, errors = self.errors[1:], self.errors
        for error in errors:
            raise error


@pytest.mark.parametrize("how", ["task_cls", "base"])
def test_an_own_base_class_is_still_called(app: Celery, how: str) -> None:
    """With an app's own Task class, by ``task_cls`` or ``base``, chains work, and its methods are called."""
    options: dict[str, Any] = {"task_cls": OwnTask} if how == "task_cls" else {}
    with Celery("own", broker="memory://", set_as_current=False, **options) as own:
        own.conf.task_default_queue = "published"
        install(own)

        @own.task(delay_chain=CHAIN, **({"base": OwnTask} if how == "base" else {}))
        def task() -> None: ...

        assert (task.max_retries, task.dead_letter_queue) == (4, "failed")
        message = fail(task, retries=1)
        assert message["headers"]["retried-by"] == "OwnTask"
        assert message["properties"]["priority"] == 3
        assert message["properties"]["delay_chain"] == CHAIN


def test_a_base_class_gets_no_argument_that_the_task_did_not_give(app: Celery) -> None:
    """An override of ``retry`` with few arguments works with a chain as it did without."""
    install(app)

    @app.task(base=NarrowTask, delay_chain=CHAIN)
    def task() -> None: ...

    task.push_request(id="i", args=(), kwargs={}, called_directly=False, delivery_info={})
    assert task.retry(exc=ValueError()).when == 240
    task.pop_request()


def trace(app: Celery, errors: list[Exception], **options: Any) -> int:
    """Runs a ``LoudTask`` that fails, as a worker does. Returns how many messages were published."""
    app.conf.result_backend = "cache+memory://"
    install(app)

    @app.task(name="loud", base=LoudTask, dead_letter_queue="published", dead_letter_on="failure", **options)
    def task() -> None:
        raise ValueError("no such order")

    app.tasks["loud"].errors = tuple(errors)
    request = {"id": "i", "retries": 1, "delivery_info": {"exchange": "", "routing_key": "orders"}}
    trace_task(app.tasks["loud"], "i", (), {}, request, app=app)
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        return int(channel._size("published")) if channel._has_queue("published") else 0


def test_a_backend_that_is_assigned_holds(app: Celery) -> None:
    """Also for a task that was declared with one."""
    install(app)

    @app.task(name="mine", backend=object())
    def task() -> None: ...

    task.backend = other = object()
    assert task.backend is other


@pytest.mark.parametrize(("error", "limit"), [(ValueError(), 3), (WorkerLostError(), 2), (SystemExit(), 2)])
def test_the_chain_of_a_message_is_the_limit_for_lost_processes_only(error: BaseException, limit: int) -> None:
    """Other threads of a pool may ask for the task's limit while Celery handles any other failure."""
    seen = []

    class Request:
        def __init__(self, message: Any) -> None:
            self._request_dict = {"properties": {"delay_chain": "1s,1s"}}

        def on_failure(self, exc_info: Any, **options: Any) -> None:
            seen.append(task.max_retries)

    class Task:
        max_retries, retry_on_worker_lost, acks_late = 3, True, False

    task = Task()
    request = request_class(Request)(SimpleNamespace(content_type="application/json"))
    request.task, request.message = task, None
    request.on_failure(SimpleNamespace(exception=error))
    assert (seen, task.max_retries, vars(task)) == ([limit], 3, {})


@pytest.mark.parametrize("options", [{}, {"delay_chain": "1s", "autoretry_for": (ValueError,)}], ids=["", "chain"])
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("error", [OSError("no disk"), Reject("not mine", requeue=True)])
def test_an_error_of_on_failure_is_no_second_failure(
    app: Celery, caplog: pytest.LogCaptureFixture, error: Exception, calls: int, options: dict[str, Any]
) -> None:
    """The task is buried once, with its own error as its result, also after the last step; the log has the other."""
    assert trace(app, [error] * calls, **options) == 1
    assert published(app)["properties"]["dead_letter"]["error"] == "ValueError: no such order"
    assert isinstance(app.AsyncResult("i").result, ValueError)
    assert "on_failure of task loud[i] raised an error" in caplog.text
    assert f"{type(error).__name__}: " in caplog.text
