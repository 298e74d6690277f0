"""The task that ``send_many`` calls, the common parts of its messages, and when Celery has to make every message."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from celery import VERSION, signals
from celery.app.routes import MapRoute
from celery.app.task import Task

from celery_ext.bulk.template import EXPIRES, PLACEHOLDERS, NoTemplate, Template, catching
from celery_ext.delays.install import sends_as_celery
from celery_ext.delays.task import DelayChainTask
from celery_ext.shards import ShardRouter
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.options import Options

if TYPE_CHECKING:
    from celery import Celery

#: Value of the header ``ignore_result`` that ``send_task`` writes if a call does not say.
RESULT_OF_UNKNOWN = None if VERSION >= (5, 7) else False
#: What Celery calls around each message.
_OF_PUBLISHING = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)


class Call(NamedTuple):
    """One call of a task. The fields mean the same as in ``apply_async``.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.
        countdown: Delay in s.
        eta: Due time, instead of ``countdown``; without a zone it is in UTC.
        task_id: Task id; by default a random one.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    countdown: float | None = None
    eta: datetime | str | None = None
    task_id: str | None = None


class Shared(NamedTuple):
    """The common parts of all messages of one ``send_many``.

    Attributes:
        template: The message with slots.
        embed: Third element of a body, after the arguments.
        declare: Queues that are declared before the first message.
        retry_policy: How often, and with which pauses, to try again when the connection is lost: arguments of
            ``Connection.ensure``. None to try once only.
    """

    template: Template
    embed: Mapping[str, Any]
    declare: list[Any]
    retry_policy: dict[str, Any] | None


class Target:
    """A task to be called many times.

    Args:
        app: The app.
        task: A task of the app, or the name of any task.
        options: Options of ``apply_async`` for all calls.
    """

    def __init__(self, app: "Celery", task: Any, options: Mapping[str, Any]) -> None:
        self.app = app
        self.name: str = task if isinstance(task, str) else task.name
        self.task: Any = app.tasks.get(self.name)
        self.options = options
        self._apply_async: Callable[..., Any] = (
            partial(app.send_task, self.name) if self.task is None else self.task.apply_async
        )

    @property
    def expires(self) -> Any:
        """Expiry of every message, in a form that Celery takes; None if the messages do not expire."""
        if "expires" in self.options:
            return self.options["expires"]
        return getattr(self.task, "expires", None)

    def call(self, call: Call) -> Any:
        """Sends a call by ``apply_async``. Returns its result."""
        own = {name: value for name, value in call._asdict().items() if value is not None}
        return self._apply_async(**own, **self.options, add_to_parent=False)

    def why_one_by_one(self) -> str | None:
        """Returns why Celery has to make every message; None if one template serves all."""
        conf = self.app.conf
        reasons = {
            "task_always_eager is set": conf.task_always_eager,
            "task_protocol is 1": conf.task_protocol == 1,
            "task_send_sent_event is set": conf.task_send_sent_event,
            "the broker uses another transport": not waits_in_redis(self.app),
            "a signal of published tasks has receivers": has_receivers(self.name),
            "a router of task_routes may look at arguments": is_routed_by_code(self.app, self.name, self.options),
            "its class has its own apply_async or shadow_name, or pydantic arguments": (
                self.task is not None and not applies_as_celery(self.task)
            ),
            "send_task of the app has been replaced": not sends_as_celery(self.app),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def shared(self, args: Any, kwargs: Any) -> Shared:
        """Makes Celery send a message to a broker in memory, and returns it as a template.

        Args:
            args: Positional arguments of a call.
            kwargs: Its keyword arguments.

        Raises:
            NoTemplate: The task goes to an exchange. Only the broker knows which queues get the message.
        """
        options = {**self.options, "ignore_result": True}  # else the result backend would wait for this result
        if self.expires is not None:
            options["expires"] = EXPIRES
        with catching(self.app.amqp.Producer) as catcher:
            self._apply_async(
                args,
                kwargs,
                task_id=PLACEHOLDERS.task_id,
                eta=PLACEHOLDERS.eta,
                producer=catcher.producer,
                add_to_parent=False,
                **options,
            )
            published = catcher.published
            template = catcher.template(
                self.name,
                self.expires,
                {"ignore_result": self._ignores_result()},
                broker=broker_options(self.app),
            )
        if published is None or template.exchange:
            raise NoTemplate(f"task {self.name} goes to an exchange")
        sent = published.options
        retry_policy = sent["retry_policy"] if sent["retry"] else None
        return Shared(template, embed=published.body[2], declare=sent["declare"] or [], retry_policy=retry_policy)

    def _ignores_result(self) -> Any:
        default = RESULT_OF_UNKNOWN if self.task is None else self.task.ignore_result
        return self.options.get("ignore_result", default)


def applies_as_celery(task: Any) -> bool:
    """Whether ``apply_async`` of a task is that of Celery's class, and does nothing with the arguments or the name."""
    above: Any = super(DelayChainTask, task) if isinstance(task, DelayChainTask) else task
    return (
        getattr(above.apply_async, "__func__", None) is Task.apply_async
        and "apply_async" not in vars(task)
        and getattr(task.shadow_name, "__func__", None) is Task.shadow_name
        and getattr(task, "_dump_pydantic_arguments", None) is None
    )


def waits_in_redis(app: "Celery") -> bool:
    """Whether the broker of an app uses our transport."""
    with app.producer_or_acquire() as producer:
        return issubclass(producer.connection.transport.Channel, DelayedChannel)


def broker_options(app: "Celery") -> Options:
    """Returns the transport options of an app whose broker uses our transport; of any other the defaults."""
    with app.producer_or_acquire() as producer:
        options = getattr(producer.connection.transport, "options", None)
    return options if isinstance(options, Options) else Options()


def has_receivers(task: str) -> bool:
    """Whether anybody hears when a task of this name is published."""
    return any(signal.receivers and signal.has_listeners(task) for signal in _OF_PUBLISHING)


def is_routed_by_code(app: "Celery", task: str, options: Mapping[str, Any]) -> bool:
    """Whether a router of an app may send each call of a task with these options to another queue."""
    return not all(
        isinstance(router, MapRoute)
        or (isinstance(router, ShardRouter) and (bool(options.get("queue")) or not router.routes(task)))
        for router in app.amqp.router.routes
    )
