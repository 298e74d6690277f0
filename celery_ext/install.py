"""Gives an app's tasks delay chains, and its calls ``delay_chain`` and ``delay_level``."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from celery import Celery

from celery_ext import worker
from celery_ext.chains import DelayChain
from celery_ext.levels import delay_of_level
from celery_ext.task import DelayChainTask


def install(app: "Celery") -> None:
    """Lets an app use ``delay_chain``, ``delay_level`` and ``dead_letter``, in tasks declared before and after.

    Call it where the app is made, in publishers and workers alike. A second call changes nothing.

    Raises:
        InvalidDelayChain: A task that is declared already has no valid schedule. One that is declared later raises
            it then, or, as all of Celery's tasks are lazy, when the app is first used.
    """
    app = getattr(app, "_get_current_object", lambda: app)()  # current_app is another one later
    # All ways to declare a task, also shared and class-based ones, end in the app's registry.
    registry = app._tasks
    if not isinstance(registry, _Registry):
        for task in list(registry.values()):
            _extend(task)
        registry.__class__ = type(type(registry).__name__, (_Registry, type(registry)), {})
    if not isinstance(app.send_task, _Sender):
        app.send_task = _Sender(app)
    worker.attach()  # for workers that the `celery` command does not start


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
    names |= {name: getattr(task, name, None) for name in ("name", "delay_chain", "dead_letter")}
    extended: Any = type(kind.__name__, (DelayChainTask, kind), names)
    extended.take_delay_chain()
    task.__class__ = extended
