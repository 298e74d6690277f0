"""The templates of rows: one for all that have the same of what a template does not leave open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from celery import signals
from celery.exceptions import QueueNotFound

from celery_ext.bulk.template import EXPIRES, MARK, NoTemplate, Template, caught
from celery_ext.spark.errors import BadRow
from celery_ext.spark.write.app_settings import AppSettings


class TemplateKey(NamedTuple):
    """What messages have in common that share a template.

    Attributes:
        task: Name of the task.
        queue: Given queue, or None.
        priority: Given priority, or None.
        time_limit: In s, or None.
        soft_time_limit: In s, or None.
        ignore_result: Or None.
        expires: Whether a row has its own expiry.
    """

    task: str
    queue: str | None
    priority: int | None
    time_limit: float | None
    soft_time_limit: float | None
    ignore_result: bool | None
    expires: bool


class Templates:
    """Makes templates, each once.

    Args:
        settings: Of the app.
    """

    def __init__(self, settings: AppSettings) -> None:
        self._settings = settings
        self._app = settings.make_app()
        self._made: dict[TemplateKey, Template] = {}

    def of(self, key: TemplateKey) -> Template:
        """Returns the template of a shape.

        Raises:
            BadRow: Such a message goes to no queue, or to several.
        """
        template = self._made.get(key)
        if template is None:
            template = self._made[key] = self._make(key)
        return template

    def _make(self, key: TemplateKey) -> Template:
        options = self._options(key)
        expires = options.pop("expires", None)
        try:
            return self._publish(key, options, expires)
        except NoTemplate as error:
            raise BadRow(str(error)) from None

    def _options(self, key: TemplateKey) -> dict[str, Any]:
        """Returns the options of a call, those of the task beneath those of the row.

        Source: celery.app.base.Celery.send_task
        """
        given = {
            name: value
            for name, value in key._asdict().items()
            if name not in ("task", "expires") and value is not None
        }
        options = {**self._settings.tasks.get(key.task, {}), **given}
        try:
            routed: dict[str, Any] = self._app.amqp.router.route(options, key.task, (), {}, None)
        except QueueNotFound as error:
            raise BadRow(f"task {key.task} has no queue: {error.args[0]}") from None
        return routed

    def _publish(self, key: TemplateKey, options: dict[str, Any], expires: Any) -> Template:
        """Lets Celery send a message, and catches it on the way."""
        slots = {name: MARK[name] for name in ("eta", "root_id", "parent_id")}
        with caught(self._app.amqp.Producer) as catcher:
            for queue in self._app.amqp.queues.values():
                # As workers do: which queues get a message depends on all of them.
                queue.bind(catcher.channel).declare()
            with _unheard():
                self._app.send_task(
                    key.task,
                    task_id=MARK["id"],
                    group_id=MARK["group"],
                    expires=EXPIRES if key.expires or expires is not None else None,
                    producer=catcher.producer,
                    add_to_parent=False,
                    **slots,
                    **options,
                )
            return catcher.template(key.task, expires)


@contextmanager
def _unheard() -> Iterator[None]:
    """Keeps messages that are never sent from what the app has connected to Celery's signals."""
    heard = [each.receivers for each in (signals.before_task_publish, signals.after_task_publish, signals.task_sent)]
    kept = [list(receivers) for receivers in heard]
    for receivers in heard:
        receivers.clear()
    try:
        yield
    finally:
        for receivers, before in zip(heard, kept, strict=True):
            receivers[:] = before
