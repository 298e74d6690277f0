"""What an app's messages depend on, beside their calls. When it changes, no template of the app holds any more."""

import os
from collections.abc import Callable
from operator import itemgetter
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import kombu.messaging
from celery import Celery
from celery.app import amqp, base
from celery.app import task as celery_task
from celery.app.routes import MapRoute
from celery.app.task import Task
from celery.app.utils import _OLD_SETTING_KEYS, SETTING_KEYS
from celery.utils.collections import DictAttribute
from kombu.messaging import Producer

from celery_ext.publish.recipe import waits_in_redis, why_of_celery
from celery_ext.publish.shards import ShardRouter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


#: Attributes of ``app.amqp`` that are made when they are first needed, and kept.
_MADE_ONCE = ("router", "queues", "create_task_message", "send_task_message")


class Watch:
    """An app as it is when this object is made. A look whether it still is so takes about 1 µs.

    Args:
        app: The app.

    Attributes:
        amqp: Its ``app.amqp``.
        queues: Its table of queues.
        shard_routers: All routers of the app if a ``ShardRouter`` is among them; else none.
        is_applied_untraced: Whether nobody has replaced ``apply_async`` of Celery's class of tasks.
        why_not: Why Celery has to make every message of the app; None if templates may serve.
    """

    def __init__(self, app: Celery) -> None:
        self._app: Any = app
        self._app.conf.task_protocol  # noqa: B018  # a configuration that is read late becomes another object here
        conf, own = self._app.conf, self._app.amqp
        for name in _MADE_ONCE:
            getattr(own, name)  # makes it, if it was reset
        # What is compared later comes first: a change meanwhile is found by the next look.
        self._conf, self._changes, self._objects = conf, dict(conf.changes), self._seen()
        self._sources = tuple(_sources_of(conf))
        self.amqp, self.queues = own, own.queues
        self.is_applied_untraced = _is_of(Task.apply_async, celery_task)
        routers = list(own.router.routes)
        self.shard_routers = routers if any(isinstance(router, ShardRouter) for router in routers) else []
        self.why_not = self._why_not()

    def is_as_noted(self) -> bool:
        """Whether the app is still as it was."""
        conf = self._conf
        # ``changes`` has what was set on the app's ``conf``; equal objects are compared by identity first.
        return bool(
            self._app._conf is conf
            and conf.changes == self._changes
            and self._objects == self._seen()
            and all(map(_Source.is_as_noted, self._sources))
        )

    def _seen(self) -> tuple[Any, ...]:
        app: Any = self._app
        try:
            # Where cached properties keep them: to ask the properties takes several times as long.
            own = vars(app)["amqp"]
            kept = vars(own)
            router, queues = kept["router"], kept["queues"]
            create, send = kept["create_task_message"], kept["send_task_message"]
        except KeyError:  # reset, or made in another way
            return ()
        return (
            os.getpid(),  # a message names the process that sent it
            own,
            router,
            router.routes,
            queues,
            len(queues.aliases.data),
            len(app._conf.maps),
            create,
            send,
            # What tracers replace.
            Task.apply_async,
            type(app).send_task,
            Producer.publish,
            Producer._publish,
        )

    def _why_not(self) -> str | None:
        app: Any = self._app
        if reason := why_of_celery(app):
            return reason
        reasons: dict[str, Callable[[], object]] = {
            "task_inherit_parent_priority is set": lambda: app.conf.task_inherit_parent_priority,
            "a router of task_routes may look at arguments": lambda: (
                not all(isinstance(router, MapRoute | ShardRouter) for router in app.amqp.router.routes)
            ),
            "something has replaced what Celery publishes with": lambda: not _publishes_as_celery(app),
            "the broker uses another transport": lambda: not waits_in_redis(app),
        }
        return next((reason for reason, holds in reasons.items() if holds()), None)


class _Source:
    """Settings of an app that stand in an object of the user's, such as a module, which Celery reads with each call.

    Args:
        values: The attributes of the object.
        names: Those that are settings.
        counts: Whether a further attribute may be a setting that was not there.
    """

    def __init__(self, values: "Mapping[str, Any]", names: "Sequence[str]", *, counts: bool) -> None:
        self._values = values
        self._count = len(values) if counts else None
        self._get = itemgetter(*names) if names else None
        self._noted = self._get(values) if self._get else None

    def is_as_noted(self) -> bool:
        """Whether all is as it was when this object was made."""
        values, get = self._values, self._get
        if self._count is not None and len(values) != self._count:
            return False
        try:
            return get is None or bool(get(values) == self._noted)
        except KeyError:
            return False


def _sources_of(conf: Any) -> "Iterator[_Source]":
    """Yields what the settings of an app are read from, beside what was set on its ``conf`` and Celery's defaults."""
    for found in conf.maps[1:-1]:
        lazy = vars(found.obj) if isinstance(found, DictAttribute) and hasattr(found.obj, "__dict__") else {}
        if "_wrapped" in lazy:  # Django's settings: ``override_settings`` puts another object behind them
            yield _Source(lazy, ["_wrapped"], counts=False)
        for values in [found] if isinstance(found, dict) else _attributes_of(getattr(found, "obj", None)):
            yield _Source(values, [name for name in values if _is_setting(name, conf.prefix)], counts=True)


def _attributes_of(found: Any) -> "Iterator[Mapping[str, Any]]":
    """Yields the attributes of an object and its classes, and of those that it wraps."""
    while hasattr(found, "__dict__"):
        own = vars(found)
        if "_wrapped" not in own:
            yield own
            above = found.__mro__[1:] if isinstance(found, type) else type(found).__mro__
            yield from (vars(one) for one in above if one.__module__ != "builtins")
        found = own.get("_wrapped", own.get("default_settings"))  # as Django names them


def _is_setting(name: str, prefix: str | None) -> bool:
    return name.startswith(prefix) if prefix else name.lower() in SETTING_KEYS or name in _OLD_SETTING_KEYS


def _publishes_as_celery(app: Any) -> bool:
    """Whether nobody has replaced a function through which Celery publishes, as tracers do."""
    own = app.amqp
    return (
        type(app).amqp is base.Celery.amqp
        and all(getattr(type(own), name) is getattr(amqp.AMQP, name) for name in _MADE_ONCE)
        and getattr(own.create_task_message, "__func__", None) is type(own).as_task_v2
        and own.producer_pool.Producer is Producer
        and _is_of(type(app).send_task, base)
        and _is_of(type(own).as_task_v2, amqp)
        and _is_of(own.send_task_message, amqp)
        and _is_of(Producer.publish, kombu.messaging)
        and _is_of(Producer._publish, kombu.messaging)
    )


def _is_of(function: Any, module: ModuleType) -> bool:
    """Whether a function is of a module.

    One that wraps it has the globals of another module, or is an object that claims to be a function.
    """
    return type(function) is FunctionType and function.__globals__ is vars(module)
