"""Gives an app's tasks delay chains, and its calls ``delay_chain`` and ``delay_level``."""

from datetime import UTC, datetime, timedelta
from functools import partial
from threading import RLock
from typing import Any

from celery import Celery
from celery.signals import task_failure, task_internal_error

from celery_ext.dead_letters.bury import queue_of
from celery_ext.delays.chain import DelayChain
from celery_ext.delays.levels import delay_of_level
from celery_ext.delays.lost import note_failure
from celery_ext.delays.task import DelayChainTask, note_internal_error

#: What a task may be declared with, beside what Celery knows.
ATTRIBUTES = ("delay_chain", "dead_letter_queue", "dead_letter_on")

#: The threads of a process may each make the first connection of an app.
_lock = RLock()


def extend_app(app: "Celery") -> None:
    """Lets an app use ``delay_chain``, ``delay_level`` and ``dead_letter_queue``, in tasks declared before and after.

    A second call changes nothing.

    Raises:
        InvalidDelayChain: A task that is declared already has no valid schedule. One that is declared later raises
            it then, or, as all of Celery's tasks are lazy, when the app is first used.
        InvalidDeadLetter: The same of ``dead_letter_on``.
    """
    app = getattr(app, "_get_current_object", lambda: app)()  # current_app is another one later
    with _lock:
        # All ways to declare a task, also shared and class-based ones, end in the app's registry.
        registry = app._tasks
        if not is_installed(app):
            for task in list(registry.values()):
                _extend(task)
            registry.__class__ = type(type(registry).__name__, (_Registry, type(registry)), {})
        if not isinstance(app.send_task, _Sender):
            app.send_task = _Sender(app)
    task_failure.connect(note_failure, dispatch_uid="delayq-failure")
    task_internal_error.connect(note_internal_error, dispatch_uid="delayq-internal-error")


def is_installed(app: "Celery") -> bool:
    """Whether ``install`` was called for an app."""
    return isinstance(app._tasks, _Registry)


def sends_as_celery(app: "Celery") -> bool:
    """Whether calls of ``send_task`` pass nothing but Celery's own and, after ``install``, ours."""
    app = getattr(app, "_get_current_object", lambda: app)()
    sender = vars(app).get("send_task")
    if isinstance(sender, _Sender):
        sender = sender.before
    return sender is None and type(app).send_task is Celery.send_task


class _Registry(dict[str, Any]):
    """Stands to the left of the class of a task registry."""

    def __setitem__(self, name: str, task: Any) -> None:
        _extend(task)
        super().__setitem__(name, task)


class _Sender:
    """Takes the place of an app's ``send_task``, where all its calls pass, and reads our options."""

    def __init__(self, app: "Celery") -> None:
        self._app = app
        #: What stood in its place; None for the class's.
        self.before = vars(app).get("send_task")
        self._last_eta: dict[float, datetime] = {}

    def __call__(
        self,
        *args: Any,
        delay_chain: DelayChain | str | None = None,
        delay_level: int | None = None,
        **options: Any,
    ) -> Any:
        """Sends a task as ``Celery.send_task`` does.

        Args:
            *args: As of ``send_task``.
            delay_chain: Retry schedule of this call; goes before the task's.
            delay_level: A level of the table ``delayq_levels``, instead of ``countdown`` or ``eta``.
            **options: As of ``send_task``.

        Raises:
            InvalidDelayChain: The schedule is none.
            InvalidDelayLevel: The level is none, or there is a ``countdown`` or an ``eta`` too.
        """
        if delay_chain is not None:
            options["delay_chain"] = DelayChain.parse(delay_chain).text  # as a property of the message
        if delay_level is not None:
            delay_s = delay_of_level(self._app, delay_level, options)
            if delay_s:
                options["eta"] = self._eta(delay_s)
        # That of the class is looked up now: tracers replace it when the process begins its work.
        send_task = self.before or partial(type(self._app).send_task, self._app)
        return send_task(*args, **options)

    def _eta(self, delay_s: float) -> datetime:
        """Returns an eta not before the one before, so that messages of one level keep their order."""
        # In UTC: local times, where summer time begins and ends, are neither added up nor compared as time passes.
        eta: datetime = self._app.now().astimezone(UTC) + timedelta(seconds=delay_s)
        self._last_eta[delay_s] = eta = max(eta, self._last_eta.get(delay_s, eta))
        return eta


def _extend(task: Any) -> None:
    """Makes a task one with a delay chain, if it is not yet."""
    kind = type(task)
    if issubclass(kind, DelayChainTask):
        return
    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    names |= {name: getattr(task, name, None) for name in ("name", *ATTRIBUTES)}
    names["dead_letter_queue"] = queue_of(task)
    extended: Any = type(kind.__name__, (DelayChainTask, kind), names)
    extended.take_declared()
    task.__class__ = extended
