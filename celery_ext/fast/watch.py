"""What an app's messages depend on, beside their calls. When it changes, no template of the app holds any more."""

import os
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import kombu.messaging
from celery import Celery
from celery.app import amqp, base
from celery.app import task as celery_task
from celery.app.task import Task
from kombu.messaging import Producer

from celery_ext.bulk.target import is_routed_by_code, waits_in_redis

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Attributes of ``app.amqp`` that are made when they are first needed, and kept.
_MADE_ONCE = ("router", "queues", "create_task_message", "send_task_message")


class Watch:
    """Looks at an app before each call, in about 1 µs.

    Args:
        app: The app.

    Attributes:
        amqp: ``app.amqp`` at the last ``note``.
        queues: Its table of queues.
        is_applied_untraced: Whether nobody has replaced ``apply_async`` of Celery's class of tasks.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self.amqp: Any = None
        self.queues: Any = None
        self.is_applied_untraced = False
        self._conf: Any = None
        self._changes: Mapping[str, Any] = {}
        self._objects: tuple[Any, ...] = ()

    def is_as_noted(self) -> bool:
        """Whether all is as it was at the last ``note``."""
        conf = self._conf
        # ``changes`` has what was set on the app's ``conf``; equal objects are compared by identity first.
        return (
            conf is not None
            and self._app._conf is conf
            and conf.changes == self._changes
            and self._objects == self._seen()
        )

    def note(self) -> None:
        """Notes how all is now."""
        self._conf = None  # until all is noted, another thread notes it too
        conf: Any = self._app.conf
        conf.task_protocol  # noqa: B018  # a configuration that is read late becomes another object here
        conf, own = self._app.conf, self._app.amqp
        for name in _MADE_ONCE:
            getattr(own, name)  # makes it, if it was reset
        self.amqp, self.queues = own, own.queues
        self.is_applied_untraced = _is_of(Task.apply_async, celery_task)
        self._changes, self._objects = dict(conf.changes), self._seen()
        self._conf = conf

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

    def why_not(self) -> str | None:
        """Returns why Celery has to make every message of the app; None if templates may serve."""
        app: Any = self._app
        conf = app.conf
        reasons: dict[str, Callable[[], object]] = {
            "task_always_eager is set": lambda: conf.task_always_eager,
            "task_protocol is 1": lambda: conf.task_protocol == 1,
            "task_send_sent_event is set": lambda: conf.task_send_sent_event,
            "task_inherit_parent_priority is set": lambda: conf.task_inherit_parent_priority,
            "a router of task_routes may look at arguments": lambda: is_routed_by_code(app),
            "something has replaced what Celery publishes with": lambda: not _publishes_as_celery(app),
            "the broker uses another transport": lambda: not waits_in_redis(app),
        }
        return next((reason for reason, holds in reasons.items() if holds()), None)


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
