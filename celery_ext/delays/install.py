"""Adds delay chains to the tasks of an app and to its calls, and finds tasks whose declaration has no effect."""

import ast
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from textwrap import dedent
from threading import RLock
from tokenize import TokenError
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.signals import task_failure, task_internal_error

from celery_ext.celery_tasks import tasks_of
from celery_ext.delays.chain import DelayChain
from celery_ext.delays.endings import note_failure
from celery_ext.delays.levels import delay_of_level
from celery_ext.delays.on_commit import SETTING as ON_COMMIT
from celery_ext.delays.on_commit import send_on_commit, waits_for_commit
from celery_ext.delays.task import DelayChainTask, note_internal_error
from celery_ext.limits import add_key
from kombu_delayq.errors import DelayqError
from kombu_delayq.message import once

if TYPE_CHECKING:
    from celery import Celery


#: Attributes of a task that Celery itself does not know.
ATTRIBUTES = ("delay_chain", "dead_letter_queue", "dead_letter_on", "waiting_key", "if_waiting", "limit")

#: Several threads may extend an app at once: each of them may make a worker's first connection, which extends the app.
_lock = RLock()


def extend_app(app: "Celery") -> None:
    """Lets an app use ``delay_chain``, ``delay_level`` and ``dead_letter_queue``, in tasks declared before and after.

    A second call changes nothing.

    Raises:
        InvalidDelayChain: A task that is declared already has a wrong schedule. A task that is declared later raises
            the error at its declaration or, as Celery's tasks are lazy, when the app is first used.
        InvalidDeadLetter: The same for ``dead_letter_on``.
        InvalidLimit: The same for ``limit``.
    """
    app = getattr(app, "_get_current_object", lambda: app)()  # a proxy, such as current_app, may name another app later
    with _lock:
        # All ways to declare a task, also shared and class-based ones, end in the app's registry.
        registry = app._tasks
        if not is_installed(app):
            before = type(registry)
            registry.__class__ = type(
                before.__name__, (_Registry, before), {}
            )  # extends what others register meanwhile
            try:
                for task in list(registry.values()):
                    _extend(task)
            except DelayqError:
                registry.__class__ = before  # the next call raises it, too
                raise
        if not isinstance(app.send_task, _SendTask):
            app.send_task = _SendTask(app)
    task_failure.connect(note_failure, weak=False, dispatch_uid="delayq-failure")
    task_internal_error.connect(note_internal_error, weak=False, dispatch_uid="delayq-internal-error")


def is_installed(app: "Celery") -> bool:
    """Whether ``install`` was called for an app."""
    return isinstance(app._tasks, _Registry)


def use_fast_publisher(app: "Celery", publisher: Any) -> None:
    """Lets the calls of an app for which ``install`` was called pass a publisher first, a ``FastPublisher``.

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
        self.fast: Any = None
        self._last_eta: dict[float, datetime] = {}

    def __call__(
        self,
        *args: Any,
        delay_chain: DelayChain | str | None = None,
        delay_level: int | None = None,
        if_waiting: str | None = None,
        waiting_key: str | None = None,
        limit: str | None = None,
        delayq_left_to_celery: bool = False,
        **options: Any,
    ) -> Any:
        """Sends a task as ``Celery.send_task`` does.

        Args:
            *args: As of ``send_task``.
            delay_chain: Retry schedule of this call; overrides the task's.
            delay_level: A level of the table ``delayq_levels``, instead of ``countdown`` or ``eta``.
            if_waiting: What happens where the key or the task id waits already, one of ``once.MODES``; overrides the
                task's. The result has what became of it in its attribute ``if_waiting``; None before the commit of a
                transaction. Its ``waiting_key`` is the key, or the task id of a call without one.
            waiting_key: Of this call, instead of one made of its arguments.
            limit: The key of its limit, such as ``account:7``; overrides the task's. Empty for none.
            delayq_left_to_celery: Whether the fast publisher has left this call to Celery. Only our tasks say so.
            **options: As of ``send_task``.

        Raises:
            InvalidDelayChain: The schedule is not a delay chain.
            InvalidDelayLevel: There is no such level, or there is a ``countdown`` or an ``eta`` too.
            InvalidIfWaiting: There is no such mode, or nothing to look for.
            InvalidLimit: ``limit`` is no key, or that of the task cannot be made of the arguments.
        """
        if delay_chain is not None:
            options["delay_chain"] = DelayChain.parse(delay_chain).text  # as a property of the message
        tasks = tasks_of(self._app)
        mode = once.waiting_options(tasks, args, options, if_waiting, waiting_key)
        given = once.argument("args", args, options), once.argument("kwargs", args, options)
        task = tasks.get(str(args[0] if args else options.get("name")))
        add_key(getattr(task, "declared_limit", None), limit, *given, options)
        own: dict[str, Any] = {"delay_level": delay_level, "mode": mode, "left_to_celery": delayq_left_to_celery}
        is_later = self.on_commit and waits_for_commit(options)
        if is_later:
            result = send_on_commit(self._app, partial(self._send, **own), args, options)
        else:
            result = self._send(*args, **own, **options)
        if mode is not None or if_waiting is not None or waiting_key is not None:
            result.waiting_key = once.key_of(str(result.id))
        if is_later or (mode is None and (if_waiting is not None or waiting_key is not None)):
            result.if_waiting = None if is_later else "added"  # beside others
        return result

    @cached_property
    def on_commit(self) -> bool:
        """Whether calls within a transaction wait for its commit; read with the first call."""
        return bool(self._app.conf.get(ON_COMMIT))

    def _send(self, *args: Any, delay_level: int | None, mode: str | None, left_to_celery: bool, **options: Any) -> Any:
        if delay_level is not None:
            delay_s = delay_of_level(self._app, delay_level, options)
            if delay_s:
                options["eta"] = self._eta(delay_s)
        if self.fast is not None and not left_to_celery and mode is None:
            result = self.fast.send(*args, **options)
            if result is not None:
                return result
        # The method of the class is looked up at each call: tracers replace it when the process begins its work.
        send_task = self.before or partial(type(self._app).send_task, self._app)
        if mode is None:
            return send_task(*args, **options)
        once.became.set(None)
        result = send_task(*args, **{**options, once.IF_WAITING: mode})
        if (became := once.became.get()) is not None:
            result.id = became.id
        result.if_waiting = became and became.outcome
        return result

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
    extended: Any = type(kind.__name__, (DelayChainTask, kind), names)
    extended.read_declaration()
    task.__class__ = extended


#: The cell of a name that a function closes over, while the name has no value yet.
_EMPTY = CellType()

#: How many calls deep the functions that a task uses are searched.
DEPTH = 4


def problems(app: "Celery") -> Iterator[str]:
    """Yields a sentence or two for each way in which tasks of an app are declared without effect."""
    if not is_installed(app):
        if found := unread(app):
            yield (
                f"delay_chain and dead_letter_queue of {tasks_in_words(found)} have no effect: the app does not use "
                "the transport of kombu-delayq, and celery_ext.install(app) was not called where it is made"
            )
    elif idle := idle_chains(app):
        yield (
            f"delay_chain of {tasks_in_words(idle)} has no effect: only a failure that autoretry_for names, or that "
            "calls retry(), waits for its next step. Any other ends the task"
        )


def unread(app: "Celery") -> list[str]:
    """Returns the names of the tasks whose declarations nothing reads until ``celery_ext.install(app)`` is called."""
    return [task.name for task in own_tasks(app) if any(getattr(task, name, None) is not None for name in ATTRIBUTES)]


def idle_chains(app: "Celery") -> list[str]:
    """Returns the names of the tasks with a delay chain for which no failure waits."""
    return [
        task.name for task in own_tasks(app) if getattr(task, "delay_chain", None) is not None and not may_retry(task)
    ]


def own_tasks(app: "Celery") -> list[Any]:
    """Returns the tasks of an app, without those that Celery brings."""
    return [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]


def may_retry(task: Any) -> bool:
    """Whether the code of a task may retry it after a failure.

    In doubt it may: if the task passes itself on to other code, or is no Python function.
    """
    if getattr(task, "autoretry_for", None) or getattr(task, "retry_on_worker_lost", False):
        return True
    bound = isinstance(task.run, MethodType)
    run = task.run.__func__ if bound else task.run
    methods = [
        member
        for kind in type(task).__mro__
        if (kind.__module__ or "").partition(".")[0] not in ("builtins", "celery", "celery_ext")
        for member in vars(kind).values()
        if isinstance(member, FunctionType)
    ]
    if not isinstance(run, FunctionType):
        return True
    seen: set[CodeType] = set()
    return _passes_itself_on(run, bound) or any(_names_retry(function, DEPTH, seen) for function in [run, *methods])


def _names_retry(function: FunctionType, depth: int, seen: set[CodeType]) -> bool:
    """Whether a name such as ``retry`` is in a function, or in one that it uses."""
    if not depth or function.__code__ in seen:
        return False
    seen.add(function.__code__)
    names = {name for code in _nested_code(function.__code__) for name in code.co_names}
    if any("retry" in name.lower() for name in names):
        return True
    found = [function.__globals__.get(name) for name in names]
    found += [getattr(module, name, None) for module in found if isinstance(module, ModuleType) for name in names]
    found += [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    return any(_names_retry(used, depth - 1, seen) for used in found if isinstance(used, FunctionType))


def _passes_itself_on(run: FunctionType, bound: bool) -> bool:
    """Whether a task's function uses the task itself, not only its attributes: as first argument or by its name."""
    own = {run.__name__, *run.__code__.co_varnames[: int(bound)]}
    try:
        nodes = list(ast.walk(ast.parse(dedent(inspect.getsource(run.__code__)))))
    except (OSError, SyntaxError, TokenError):  # there is no source, or not alone, or it was changed since it was read
        return True
    of_attributes = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    return any(isinstance(node, ast.Name) and node.id in own and node not in of_attributes for node in nodes)


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    """Yields the code of a function and of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_code(constant)


def tasks_in_words(names: list[str]) -> str:
    """Returns ``task a``, or ``tasks a, b``."""
    return f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names)}"
