"""Adds delay chains to the tasks of an app, and ``delay_chain`` and ``delay_level`` to its calls."""

from datetime import UTC, datetime, timedelta
from functools import partial
from threading import RLock
from typing import Any, Protocol

from celery import Celery
from celery.signals import task_failure, task_internal_error

from celery_ext.delays.chain import DelayChain
from celery_ext.delays.levels import delay_of_level
from celery_ext.delays.outside_failures import note_failure
from celery_ext.delays.task import DelayChainTask, note_internal_error

#: Attributes of a task that Celery itself does not know.
ATTRIBUTES = ("delay_chain", "dead_letter_queue", "dead_letter_on")

#: Several threads may extend an app at once: each of them may make a worker's first connection, which extends the app.
_lock = RLock()


def extend_app(app: "Celery") -> None:
    """Lets an app use ``delay_chain``, ``delay_level`` and ``dead_letter_queue``, in tasks declared before and after.

    A second call changes nothing.

    Raises:
        InvalidDelayChain: A task that is declared already has a wrong schedule. A task that is declared later raises
            the error at its declaration or, as Celery's tasks are lazy, when the app is first used.
        InvalidDeadLetter: The same for ``dead_letter_on``.
    """
    app = getattr(app, "_get_current_object", lambda: app)()  # a proxy, such as current_app, may name another app later
    with _lock:
        # All ways to declare a task, also shared and class-based ones, end in the app's registry.
        registry = app._tasks
        if not is_installed(app):
            for task in list(registry.values()):
                _extend(task)
            registry.__class__ = type(type(registry).__name__, (_Registry, type(registry)), {})
        if not isinstance(app.send_task, _SendTask):
            app.send_task = _SendTask(app)
    task_failure.connect(note_failure, dispatch_uid="delayq-failure")
    task_internal_error.connect(note_internal_error, dispatch_uid="delayq-internal-error")


def is_installed(app: "Celery") -> bool:
    """Whether ``install`` was called for an app."""
    return isinstance(app._tasks, _Registry)


class Publisher(Protocol):
    """Sends calls instead of Celery."""

    def send(self, *args: Any, **options: Any) -> Any:
        """Gets the arguments of ``send_task``, and returns its result; None if it leaves the call to Celery."""

    def apply_async(self, task: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        """Gets a task and the arguments of its ``apply_async``.

        Returns:
            The result of the call; ``LEFT_TO_CELERY`` if Celery has to send it, and ``send`` would say the same; None
            if the call has to go through ``Task.apply_async`` first.
        """


def use_fast_publisher(app: "Celery", publisher: Publisher) -> None:
    """Lets the calls of an app for which ``install`` was called pass a publisher first.

    If somebody else has set a ``send_task`` on the app before, that gets all calls.
    """
    app = getattr(app, "_get_current_object", lambda: app)()
    with _lock:
        sender = vars(app)["send_task"]
        if isinstance(sender, _SendTask) and sender.fast is None and sender.before is None:
            sender.fast = publisher


def sends_as_celery(app: "Celery") -> bool:
    """Whether an app's ``send_task`` is Celery's own, or ours around Celery's own, but nobody else's."""
    app = getattr(app, "_get_current_object", lambda: app)()
    sender = vars(app).get("send_task")
    if isinstance(sender, _SendTask):
        sender = sender.before
    return sender is None and type(app).send_task is Celery.send_task


class _Registry(dict[str, Any]):
    """Extends each task that is registered. ``extend_app`` puts it before the class of the app's task registry."""

    def __setitem__(self, name: str, task: Any) -> None:
        _extend(task)
        super().__setitem__(name, task)


class _SendTask:
    """Replaces the ``send_task`` of an app, through which all calls of its tasks pass, and reads our options."""

    def __init__(self, app: "Celery") -> None:
        self._app = app
        #: The ``send_task`` that was set on the app before; None for the method of its class.
        self.before = vars(app).get("send_task")
        #: Sends calls by templates, see ``celery_ext.publish.fast``; None for Celery's way.
        self.fast: Publisher | None = None
        self._last_eta: dict[float, datetime] = {}

    def __call__(
        self,
        *args: Any,
        delay_chain: DelayChain | str | None = None,
        delay_level: int | None = None,
        delayq_left_to_celery: bool = False,
        **options: Any,
    ) -> Any:
        """Sends a task as ``Celery.send_task`` does.

        Args:
            *args: As of ``send_task``.
            delay_chain: Retry schedule of this call; overrides the task's.
            delay_level: A level of the table ``delayq_levels``, instead of ``countdown`` or ``eta``.
            delayq_left_to_celery: Whether the fast publisher has left this call to Celery. Only our tasks say so.
            **options: As of ``send_task``.

        Raises:
            InvalidDelayChain: The schedule is not a delay chain.
            InvalidDelayLevel: There is no such level, or there is a ``countdown`` or an ``eta`` too.
        """
        if delay_chain is not None:
            options["delay_chain"] = DelayChain.parse(delay_chain).text  # as a property of the message
        if delay_level is not None:
            delay_s = delay_of_level(self._app, delay_level, options)
            if delay_s:
                options["eta"] = self._eta(delay_s)
        if self.fast is not None and not delayq_left_to_celery:
            result = self.fast.send(*args, **options)
            if result is not None:
                return result
        # The method of the class is looked up at each call: tracers replace it when the process begins its work.
        send_task = self.before or partial(type(self._app).send_task, self._app)
        return send_task(*args, **options)

    def _eta(self, delay_s: float) -> datetime:
        """Returns an eta that is not before the last eta of this delay, so that messages of a level stay in order."""
        # In UTC: local times jump where summer time begins and ends.
        eta: datetime = self._app.now().astimezone(UTC) + timedelta(seconds=delay_s)
        self._last_eta[delay_s] = eta = max(eta, self._last_eta.get(delay_s, eta))
        return eta


def _extend(task: Any) -> None:
    """Makes a task follow delay chains, if it does not yet."""
    kind = type(task)
    if issubclass(kind, DelayChainTask):
        return
    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    names |= {name: getattr(task, name, None) for name in ("name", *ATTRIBUTES)}
    names["dead_letter_queue"] = getattr(task, "dead_letter_queue", None)
    extended: Any = type(kind.__name__, (DelayChainTask, kind), names)
    extended.read_declaration()
    task.__class__ = extended
