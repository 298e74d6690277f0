"""Templates of messages, and which row uses which."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from celery import signals
from celery.exceptions import QueueNotFound

from celery_ext.publish import EXPIRES, PLACEHOLDERS, NoTemplate, Template, catching
from celery_ext.spark.errors import BadRow
from kombu_delayq.options import Options

if TYPE_CHECKING:
    from celery_ext.spark.app_settings import AppSettings
    from celery_ext.spark.write.task_fields import TaskFields


class TemplateKey(NamedTuple):
    """What messages that share a template have in common.

    Attributes:
        task: Name of the task.
        queue: Queue that the row or the option names, or None.
        priority: Priority that the row or the option names, or None.
        time_limit: In s, or None.
        soft_time_limit: In s, or None.
        ignore_result: Whether the result is dropped, or None.
        delay_chain: Retry schedule, or None for that of the task.
        expires: Whether the row has an expiry.
        serializer: Name of the serializer of the body; None for that of the task or the app.
    """

    task: str
    queue: str | None = None
    priority: int | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    ignore_result: bool | None = None
    delay_chain: str | None = None
    expires: bool = False
    serializer: str | None = None


#: Fields of a key that a row gives as columns; no column gives the last two as they are.
_KEY_COLUMNS = TemplateKey._fields[:-2]


class Templates:
    """Makes templates, one for each key.

    Args:
        settings: Settings of the app.
        broker: The options of the transport; None for the defaults.

    Attributes:
        repr_levels: Depth to which Celery shows arguments.
        limits: What tasks declare of their limits, by name of the task.
    """

    def __init__(self, settings: "AppSettings", broker: Options | None = None) -> None:
        self.repr_levels = int(settings.conf.get("task_repr_maxlevels", 3) or 0)
        self.limits = settings.limits
        self._settings, self._broker = settings, broker
        self._app = settings.make_app()
        self._made: dict[TemplateKey, Template] = {}

    def of(self, key: TemplateKey) -> Template:
        """Returns the template of a key.

        Raises:
            BadRow: Such a message goes to no queue, or to several.
        """
        template = self._made.get(key)
        if template is None:
            template = self._made[key] = self._make(key)
        return template

    def of_rows(self, fields: "TaskFields", expire: Sequence[bool]) -> list[Template | None]:
        """Returns the template of each row of a batch, None where the row makes no task.

        Args:
            fields: Fields of the rows.
            expire: Whether each row has an expiry.
        """

        def template(row: int, task: str | None, queue: str | None, *others: Any) -> Template | None:
            if task is None:
                return None
            try:
                return self.of(TemplateKey(task, queue, *others))
            except BadRow as error:
                fields.rows.add_error(row, queue, error, "queue")
                return None

        columns = [fields.of(name) for name in _KEY_COLUMNS]
        if fields.is_constant(*_KEY_COLUMNS) and len(set(expire)) == 1:
            return [template(0, *(column[0] for column in columns), expire[0])] * len(expire)
        return [template(row, *key) for row, key in enumerate(zip(*columns, expire, strict=True))]

    def _make(self, key: TemplateKey) -> Template:
        options = self._options(key)
        expires = options.pop("expires", None)
        try:
            return self._publish(key, options, expires)
        except NoTemplate as error:
            raise BadRow(str(error)) from None

    def _options(self, key: TemplateKey) -> dict[str, Any]:
        """Returns the options of a call. Those of the row replace those of the task.

        Source: celery.app.base.Celery.send_task
        """
        of_row = {
            name: value
            for name, value in key._asdict().items()
            if name not in ("task", "expires") and value is not None
        }
        options = {**self._settings.tasks.get(key.task, {}), **of_row}
        try:
            routed: dict[str, Any] = self._app.amqp.router.route(options, key.task, (), {}, None)
        except QueueNotFound as error:
            raise BadRow(f"task {key.task} has no queue: {error.args[0]}") from None
        return routed

    def _publish(self, key: TemplateKey, options: dict[str, Any], expires: Any) -> Template:
        """Makes Celery send a message to a broker in memory, and returns it as a template."""
        with catching(self._app.amqp.Producer) as catcher:
            # Workers declare all their queues, and all these queues decide which of them get a message.
            for queue in self._app.amqp.queues.values():
                queue.bind(catcher.channel).declare()
            with _signals_without_receivers():
                self._app.send_task(
                    key.task,
                    task_id=PLACEHOLDERS.task_id,
                    eta=PLACEHOLDERS.eta,
                    group_id=PLACEHOLDERS.group_id,
                    root_id=PLACEHOLDERS.root_id,
                    parent_id=PLACEHOLDERS.parent_id,
                    expires=EXPIRES if key.expires or expires is not None else None,
                    producer=catcher.producer,
                    add_to_parent=False,
                    **options,
                )
            return catcher.template(key.task, expires, broker=self._broker)


@contextmanager
def _signals_without_receivers() -> Iterator[None]:
    """Disconnects the app's receivers of Celery's signals: a template is never sent."""
    publishing = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)
    connected = [list(signal.receivers) for signal in publishing]
    for signal in publishing:
        signal.receivers.clear()
    try:
        yield
    finally:
        for signal, receivers in zip(publishing, connected, strict=True):
            signal.receivers[:] = receivers
