"""The settings of an app that decide its messages: read once on the driver, handed to executors without the app."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from celery.app.utils import find_app
from kombu.common import Broadcast

from celery_ext.delays import DelayLevels
from celery_ext.limits import LimitDeclaration, declared_limit
from celery_ext.spark.errors import InvalidSparkOption
from kombu_delayq.errors import InvalidDelayLevel, InvalidLimit, quoted

#: Names of the settings.
SETTINGS = (
    *("task_default_queue", "task_default_exchange", "task_default_exchange_type", "task_default_routing_key"),
    *("task_default_delivery_mode", "task_default_priority", "task_queue_max_priority", "task_default_queue_type"),
    *("task_routes", "task_queues", "task_create_missing_queues", "task_serializer", "task_compression"),
    *("task_create_missing_queue_type", "task_create_missing_queue_exchange_type", "task_repr_maxlevels"),
    *("task_protocol", "enable_utc", "timezone"),
)


@dataclass(frozen=True)
class AppSettings:
    """What the messages of an app depend on. Pickled without the app.

    Attributes:
        conf: Values of the settings of the app.
        tasks: Options that ``apply_async`` takes from a task, by name of the task.
        broker_url: URL of the app's broker; None without an app.
        transport_options: Transport options of this broker.
        tls: Value of the app's ``broker_use_ssl``.
        levels: Table of the app's delay levels, or None.
        limits: What tasks declare of their limits, by name of the task.
    """

    conf: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    broker_url: str | None = None
    transport_options: dict[str, Any] = field(default_factory=dict)
    tls: Any = None
    levels: str | None = None
    limits: dict[str, LimitDeclaration] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str | None) -> "AppSettings":
        """Reads the settings of an app.

        Args:
            name: As for ``celery -A``; None for no app.

        Raises:
            InvalidSparkOption: There is no such app, it has settings that executors cannot get, its setting
                ``delayq_levels`` is not a table of delay levels, or a task has a wrong ``limit``.
        """
        if name is None:
            return cls()
        try:
            app = find_app(name)
        except Exception as error:  # the module of the app can raise anything
            raise InvalidSparkOption(f"celery_app={quoted(name)} cannot be loaded: {error!r}") from error
        if not isinstance(app, Celery):
            raise InvalidSparkOption(f"celery_app={quoted(name)} is not a Celery app")
        _check_queues(app)
        return cls(
            _conf_of(app),
            {task.name: _options_of(task) for task in app.tasks.values() if not task.name.startswith("celery.")},
            app.conf.broker_write_url or app.conf.broker_url,
            dict(app.conf.broker_transport_options or {}),
            app.conf.broker_use_ssl or None,
            _levels_of(app),
            _limits_of(app),
        )

    def without_broker(self) -> "AppSettings":
        """Returns these settings without those of the broker, which may have passwords."""
        return AppSettings(self.conf, self.tasks, levels=self.levels, limits=self.limits)

    def make_app(self) -> Celery:
        """Returns an app that makes the same messages and has a broker in memory."""
        app = Celery("celery_ext.spark", set_as_current=False, broker="memory://", backend="disabled")
        app.conf.update(self.conf)
        return app


def _conf_of(app: Celery) -> dict[str, Any]:
    conf = {}
    for setting in SETTINGS:
        # Some versions of Celery lack a setting. ``in`` does not find settings that are not loaded yet.
        with suppress(KeyError):
            conf[setting] = app.conf[setting]
    if conf.get("task_protocol") == 1:
        raise InvalidSparkOption("the app has task_protocol = 1; Spark jobs write messages of protocol 2 only")
    for setting, value in conf.items():
        _check_picklable(setting, value)
    return conf


def _levels_of(app: Celery) -> str | None:
    try:
        levels = app.conf.get("delayq_levels")
        return str(DelayLevels.parse(levels)) if levels else None
    except InvalidDelayLevel as error:
        raise InvalidSparkOption(f"the app's setting delayq_levels: {error}") from None


def _limits_of(app: Celery) -> dict[str, LimitDeclaration]:
    try:
        declared = {name: declared_limit(task) for name, task in app.tasks.items()}
    except InvalidLimit as error:
        raise InvalidSparkOption(f"the app has a wrong task: {error}") from None
    return {name: limit for name, limit in declared.items() if limit is not None}


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


def _check_picklable(setting: str, value: Any) -> None:
    from pyspark.cloudpickle import dumps

    try:
        dumps(value)
    except Exception as error:  # objects in settings can raise anything
        raise InvalidSparkOption(f"the setting {setting} cannot be handed to executors: {error}") from error
