"""Points all apps of this process at a test's broker, and takes everything back at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any
from warnings import catch_warnings, simplefilter

from celery import Celery, _state
from celery.app.control import Control
from celery.app.task import Task
from celery.backends.cache import CacheBackend
from celery.canvas import _chain, _chord
from celery.exceptions import AlwaysEagerIgnored
from celery.result import AsyncResult
from celery.signals import before_task_publish
from kombu.connection import Connection

from celery_ext.delays import extend_app, is_installed
from celery_ext.testing.sending import Clock, Sending, is_delay
from celery_ext.waiting import control
from kombu_delayq import channel
from kombu_delayq.store import Store

#: Beginnings of result backends that need no server of their own, or that a project tests on purpose.
_KEPT_BACKENDS = ("cache+memory", "db+", "django-", "file:")
#: Options of a retry that belong to the try before.
_OF_EAGER = ("is_eager", "exchange", "routing_key", "priority")
#: Whether an eager chain or chord runs a task now. It awaits the result, so a retry that waited would hang it.
_awaited: ContextVar[bool] = ContextVar("awaited", default=False)


class Patches:
    """What a test changes in Celery and in apps, and how it was."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Replaces an attribute that a class itself has."""
        before = vars(owner)[name]
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before))

    def extend(self, app: Any) -> None:
        """Gives an app delay chains, levels and dead letters, as a worker on our transport gives its own app."""
        if is_installed(app):
            return
        registry, send_task = app._tasks, vars(app).get("send_task")
        kinds = [(task, type(task)) for task in (registry, *registry.values())]
        extend_app(app)

        def take_back() -> None:
            for one, kind in kinds:
                one.__class__ = kind
            vars(app).pop("send_task", None)
            if send_task is not None:
                app.send_task = send_task

        self._undo.append(take_back)

    def undo(self) -> None:
        """Brings all attributes back."""
        while self._undo:
            self._undo.pop()()


def active_apps() -> list[Any]:
    """Returns all apps of this process."""
    return [getattr(app, "_get_current_object", lambda app=app: app)() for app in list(_state._get_active_apps())]


@contextmanager
def pointed_at(connect: Callable[[Any], Connection] | None, sending: Sending) -> Iterator[Patches]:
    """Points all apps at a broker, also those that are made later. No setting of an app changes.

    Yields what is undone at the end, to which more may be added.

    Args:
        connect: Returns a connection of an app to the broker; None to leave each app its own broker and results.
        sending: Sends their calls.
    """
    patches, pools = Patches(), {id(app): (app, app._pool) for app in active_apps()}
    try:
        patches.replace(Celery, "send_task", lambda app, *args, **options: sending.send_task(app, *args, **options))
        _wait_also_when_eager(patches)
        _revoke(patches, sending.revoked)
        _skip(patches, sending.clock)
        # With a receiver, send_many and the fast publisher leave all calls to send_task.
        before_task_publish.connect(_hear, weak=False, dispatch_uid="delayed-tasks")
        if connect is not None:
            for way in ("connection_for_read", "connection_for_write"):
                patches.replace(Celery, way, lambda app, url=None, **options: connect(app))
            _keep_results(patches)
            _forget_connections(pools)
        yield patches
    finally:
        before_task_publish.disconnect(dispatch_uid="delayed-tasks")
        patches.undo()
        if connect is not None:
            _forget_connections(pools, close=True)


def _hear(**what: Any) -> None:
    pass


def _skip(patches: Patches, clock: Clock) -> None:
    """Adds what the test has skipped to the clock of Redis, and to that of publishers."""
    now_ms = Store.now_ms
    patches.replace(Store, "now_ms", lambda store: now_ms(store) + clock.skipped_s * 1000)
    patches.replace(channel, "time", clock.now_s)


def _forget_connections(pools: dict[int, tuple[Any, Any]], *, close: bool = False) -> None:
    """Lets apps connect anew. close: Whether to close the present pools, and to bring back those of before the test."""
    for app in active_apps():
        own, before = vars(app).get("amqp"), pools.get(id(app), (app, None))[1]
        if close and app._pool is not None and app._pool is not before:
            app._pool.force_close_all()
        app._pool = before if close else None
        if own is not None:
            own._producer_pool = None
        app._backend_cache = None
        vars(app._local).pop("backend", None)


def _keep_results(patches: Patches) -> None:
    """Keeps results in memory that would go to a server."""
    make, results = Celery._get_backend, _Results()

    def get_backend(app: Any) -> Any:
        wanted = app.backend_cls or app.conf.result_backend
        if not isinstance(wanted, str | None) or str(wanted).startswith(_KEPT_BACKENDS):
            return make(app)
        backend = _MemoryBackend(app=app, backend="memory://")
        backend.client.cache = results
        return backend

    patches.replace(Celery, "_get_backend", get_backend)


class _MemoryBackend(CacheBackend):
    """Keeps the results of delayed tasks, also of an eager app."""

    def _ensure_not_eager(self) -> None:
        pass  # Celery warns that eager tasks have no result here


class _Results(dict[Any, Any]):
    """Results in memory, with the one operation of a cache that a dict has not."""

    def incr(self, key: Any, delta: int = 1) -> int:
        self[key] = value = int(self.get(key) or 0) + delta
        return value


def _wait_also_when_eager(patches: Patches) -> None:
    """With ``task_always_eager``, lets calls and retries wait that have a delay. Celery would run them at once.

    The other calls run as in a worker on our transport, so that a retry waits as its delay chain says. Within a chain
    or a chord retries run at once, as without the fixture.
    """
    apply_async, apply = Task.apply_async, Task.apply

    def maybe_wait(task: Any, *args: Any, **options: Any) -> Any:
        conf, eager = task.app.conf, task.app.conf.task_always_eager
        if eager and not _has_delay(options):
            patches.extend(task.app)
        if not (eager and _has_delay(options)):
            with _while_awaited(False):  # nobody awaits what a task of a chain calls
                return apply_async(task, *args, **options)
        conf.task_always_eager = False
        try:
            return apply_async(task, *args, **options)
        finally:
            conf.task_always_eager = eager

    def maybe_retry(task: Any, *args: Any, **options: Any) -> Any:
        is_retry = options.get("retries") and _has_delay(options)
        if not (is_retry and task.app.conf.task_always_eager) or _awaited.get():
            return apply(task, *args, **options)
        kept = {
            name: value for name, value in options.items() if not (name in _OF_EAGER and not isinstance(value, str))
        }
        return maybe_wait(task, *args, **kept)

    patches.replace(Task, "apply_async", maybe_wait)
    patches.replace(Task, "apply", maybe_retry)
    for canvas in (_chain, _chord):
        patches.replace(canvas, "apply", _awaiting(canvas.apply))


@contextmanager
def _while_awaited(awaited: bool) -> Iterator[None]:
    token = _awaited.set(awaited)
    try:
        yield
    finally:
        _awaited.reset(token)


def _awaiting(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def await_tasks(*args: Any, **options: Any) -> Any:
        with _while_awaited(True):
            return call(*args, **options)

    return await_tasks


def _has_delay(options: dict[str, Any]) -> bool:
    return bool(options.get("eta") or options.get("delay_level")) or is_delay(options.get("countdown"))


def _revoke(patches: Patches, revoked: set[str]) -> None:
    """Lets ``revoke`` cancel tasks that wait, as our workers do, and note the ids of all, as any worker."""
    revoke = Control.revoke

    def revoke_and_cancel(self: Any, task_id: Any, *args: Any, **options: Any) -> Any:
        ids = [task_id] if isinstance(task_id, (str, AsyncResult)) else list(task_id)
        revoked.update(map(str, ids))
        control.cancel(self.app, ids)
        return revoke(self, task_id, *args, **options)

    patches.replace(Control, "revoke", revoke_and_cancel)


def send_task_of_celery() -> Callable[..., Any]:
    """Returns ``Celery.send_task``, which says nothing of ``task_always_eager``: delayed calls wait all the same."""
    send_task: Callable[..., Any] = Celery.send_task

    def send(*args: Any, **options: Any) -> Any:
        with catch_warnings():
            simplefilter("ignore", AlwaysEagerIgnored)
            return send_task(*args, **options)

    return send
