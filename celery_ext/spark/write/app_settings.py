"""What an app says about its messages, taken once on the driver and handed to executors that do not have the app."""

import pickle
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from celery.app.utils import find_app
from kombu.common import Broadcast

from celery_ext.delays.levels import DelayLevels
from celery_ext.spark.errors import InvalidSparkOption
from kombu_delayq.errors import quoted

#: Settings that decide what a message is, and where it goes.
SETTINGS = (
    *("task_default_queue", "task_default_exchange", "task_default_exchange_type", "task_default_routing_key"),
    *("task_default_delivery_mode", "task_default_priority", "task_queue_max_priority", "task_default_queue_type"),
    *("task_routes", "task_queues", "task_create_missing_queues", "task_serializer", "task_compression"),
    *("task_create_missing_queue_type", "task_create_missing_queue_exchange_type", "task_repr_maxlevels"),
    *("task_protocol", "enable_utc", "timezone"),
)


@dataclass(frozen=True)
class AppSettings:
    """Of an app, what its messages depend on. Pickled without the app.

    Attributes:
        conf: Its settings.
        tasks: By name of a task, the options that ``apply_async`` takes from it.
        broker_url: Its broker; None when there is no app.
        transport_options: Of its broker.
        tls: Its ``broker_use_ssl``.
        levels: Its table of delay levels, or None.
    """

    conf: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    broker_url: str | None = None
    transport_options: dict[str, Any] = field(default_factory=dict)
    tls: Any = None
    levels: str | None = None

    @classmethod
    def of(cls, name: str | None) -> "AppSettings":
        """Reads the app that ``celery -A`` would find under a name.

        Raises:
            InvalidSparkOption: There is none, or it has settings that cannot be handed over.
            InvalidDelayLevel: Its setting ``delayq_levels`` is no table.
        """
        if name is None:
            return cls()
        try:
            app = find_app(name)
        except Exception as error:  # whatever the app's own module raises
            raise InvalidSparkOption(f"celery_app={quoted(name)} cannot be loaded: {error!r}") from error
        if not isinstance(app, Celery):
            raise InvalidSparkOption(f"celery_app={quoted(name)} is no Celery app")
        conf = {}
        for setting in SETTINGS:
            with suppress(KeyError):  # of other versions of Celery; ``in`` does not see what is yet to be loaded
                conf[setting] = app.conf[setting]
        if conf.get("task_protocol") == 1:
            raise InvalidSparkOption("the app has task_protocol = 1; messages of protocol 2 are written only")
        _check_queues(app)
        tasks = {task.name: _options_of(task) for task in app.tasks.values() if not task.name.startswith("celery.")}
        levels = app.conf.get("delayq_levels")
        return cls(
            _picklable(conf),
            tasks,
            app.conf.broker_write_url or app.conf.broker_url,
            dict(app.conf.broker_transport_options or {}),
            app.conf.broker_use_ssl or None,
            str(DelayLevels.parse(levels)) if levels else None,
        )

    def without_broker(self) -> "AppSettings":
        """Returns them without the broker's URL and options, which may have passwords."""
        return AppSettings(self.conf, self.tasks, levels=self.levels)

    def make_app(self) -> Celery:
        """Makes an app that builds the same messages, and sends none."""
        app = Celery("celery_ext.spark", set_as_current=False, broker="memory://", backend="disabled")
        app.conf.update(self.conf)
        return app


def _options_of(task: Any) -> dict[str, Any]:
    """Returns what ``apply_async`` takes from a task.

    Source: celery.app.task.Task.apply_async
    """
    options = {name: value for name, value in task._get_exec_options().items() if value is not None}
    return {**options, "ignore_result": task.ignore_result}


def _check_queues(app: Celery) -> None:
    for queue in app.amqp.queues.values():
        if isinstance(queue, Broadcast) and app.conf.task_default_queue in (queue.name, getattr(queue, "alias", None)):
            raise InvalidSparkOption(
                f"the default queue {app.conf.task_default_queue} is a broadcast, which has no list to write to"
            )


def _picklable(conf: dict[str, Any]) -> dict[str, Any]:
    for name, value in conf.items():
        try:
            pickle.dumps(value)
        except Exception as error:  # of any object that a setting may have
            from pyspark.cloudpickle import dumps

            try:
                dumps(value)
            except Exception:
                raise InvalidSparkOption(f"the setting {name} cannot be handed to executors: {error}") from error
    return conf
