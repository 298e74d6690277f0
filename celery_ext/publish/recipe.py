"""How the messages of one task with the same options are made: by a template, or by Celery, and then why."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from celery import signals
from celery.app.routes import MapRoute
from celery.app.task import Task
from kombu import compression, serialization
from kombu.entity import Queue
from kombu.log import get_logger
from kombu.utils.json import dumps

from celery_ext.delays import DelayChainTask, is_installed, sends_as_celery
from celery_ext.limits import LIMIT_HEADER, add_key
from celery_ext.publish.shards import ShardRouter
from celery_ext.publish.template import (
    EXPIRES,
    PLACEHOLDERS,
    RESULT_OF_UNKNOWN,
    NoTemplate,
    Template,
    catching,
    placeholder,
)
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.message import ADD, CHAIN, CHAIN_ID, DEAD_LETTER, IF_WAITING, LAST_ERROR, id_of_call, mode_of, to_json
from kombu_delayq.options import Options

if TYPE_CHECKING:
    from celery import Celery

logger = get_logger(__name__)

#: What Celery calls around each message.
_OF_PUBLISHING = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)
#: Types of options that the template of single calls may contain.
_PLAIN = frozenset((str, int, float, bool, type(None)))
#: Names of the headers that every message has: further headers of a call must not replace them.
_HEADERS = frozenset(("compression", "argsrepr", "kwargsrepr"))
#: Options of single calls that a message has in its headers, its properties or both; and what stands for their texts.
IN_OPTIONS = {
    "origin": placeholder("origin"),
    "argsrepr": PLACEHOLDERS.argsrepr,
    "kwargsrepr": PLACEHOLDERS.kwargsrepr,
    CHAIN_ID: placeholder("chain_id"),
    LAST_ERROR: placeholder("last_error"),
}


class Call(NamedTuple):
    """One call of a task. The fields mean the same as in ``apply_async``.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.
        countdown: Delay in s.
        eta: Due time, instead of ``countdown``; without a zone it is in UTC.
        task_id: Task id; by default a random one.
        limit: The key of its limit; by default that of the task. Empty for none.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    countdown: float | None = None
    eta: datetime | str | None = None
    task_id: str | None = None
    limit: str | None = None


class Recipe(NamedTuple):
    """How messages of one task with the same options are made and published.

    Attributes:
        name: Name of the task.
        template: The message with gaps.
        serialize: Writes a body from arguments.
        codec: The serializer that ``serialize`` uses, as kombu knows it.
        headers: Names of all headers.
        declare: Queues that are declared before a message is published.
        retry_policy: How often, and with which pauses, to try again when the connection is lost: arguments of
            ``Connection.ensure``. None to try once only.
        ignore_result: As of ``apply_async``.
        task: What the app has under the name of the task.
        priority: 0 to 9.
        broker: The options of the transport.
        in_chain: Whether the messages have a delay chain.
        is_step: Whether they are steps of a delay chain.
    """

    name: str
    template: Template
    serialize: Callable[[Any, Any], bytes]
    codec: Any
    headers: frozenset[str]
    declare: Sequence[Queue]
    retry_policy: dict[str, Any] | None
    ignore_result: Any
    task: Any
    priority: int
    broker: Options
    in_chain: bool
    is_step: bool

    def still_holds(self, app: "Celery", queues: dict[str, Queue]) -> bool:
        """Whether the task, the queue and the serializer are those that the recipe was made of.

        Args:
            app: The app.
            queues: Its table of queues, ``app.amqp.queues``.
        """
        for queue in self.declare:
            if dict.get(queues, queue.name) is not queue:
                return False
        codec = serialization.registry._encoders.get(self.template.serializer)
        return app._tasks.get(self.name) is self.task and codec is self.codec


class Target:
    """A task to be called many times.

    Args:
        app: The app.
        task: A task of the app, or the name of any task.
        options: Options of ``apply_async`` for all calls.
    """

    def __init__(self, app: "Celery", task: Any, options: Mapping[str, Any]) -> None:
        self.app = app
        # First of all: in a worker's process, the first connection installs our extension of the app.
        self._waits_in_redis = waits_in_redis(app)
        self.name: str = task if isinstance(task, str) else task.name
        self.task: Any = app.tasks.get(self.name)
        self.options = {name: value for name, value in options.items() if name != "limit"}
        self._declared_limit = getattr(self.task, "declared_limit", None)
        self._limit, headers = options.get("limit"), options.get("headers")
        if isinstance(headers, Mapping) and LIMIT_HEADER in headers:  # else it would stand in the template
            self._limit = headers[LIMIT_HEADER] if self._limit is None else self._limit
            self.options["headers"] = {name: value for name, value in headers.items() if name != LIMIT_HEADER}
        self._apply_async: Callable[..., Any] = (
            partial(app.send_task, self.name) if self.task is None else self.task.apply_async
        )

    @property
    def has_limit(self) -> bool:
        """Whether calls without a limit of their own may have a key."""
        return self._limit is not None or self._declared_limit is not None

    @property
    def expires(self) -> Any:
        """Expiry of every message, in a form that Celery takes; None if the messages do not expire."""
        if "expires" in self.options:
            return self.options["expires"]
        return getattr(self.task, "expires", None)

    @cached_property
    def mode(self) -> str | None:
        """What happens where the id of a call waits, ``keep`` or ``replace``; None if nobody asks.

        Raises:
            InvalidIfWaiting: There is no such mode.
        """
        return mode_of(self.task, self.name, self.options.get("if_waiting")) if is_installed(self.app) else None

    def with_id(self, call: Call) -> Call:
        """Returns a call with the task id that ``mode`` needs.

        Raises:
            InvalidIfWaiting: It has none, and the task cannot make one.
        """
        if self.mode is None or call.task_id is not None:
            return call
        return call._replace(task_id=id_of_call(self.task, self.name, self.mode, call.args or (), call.kwargs or {}))

    def headers_of(self, call: Call, headers: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """Returns the headers that only a call has, with the key of its limit.

        Args:
            call: The call.
            headers: Its further headers.

        Raises:
            InvalidLimit: As of ``add_key``.
        """
        limit = self._limit if call.limit is None else call.limit
        own: dict[str, Any] = {"headers": headers}
        add_key(self._declared_limit, limit, call.args, call.kwargs, own)
        with_key: Mapping[str, Any] | None = own["headers"]
        return with_key

    def call(self, call: Call, **options: Any) -> Any:
        """Sends a call by ``apply_async``, with further options that only this call has. Returns its result."""
        own = {name: value for name, value in call._asdict().items() if value is not None}
        if self._limit is not None:
            own.setdefault("limit", self._limit)
        return self._apply_async(**own, **{**self.options, **options}, add_to_parent=False)

    def why_one_by_one(self) -> str | None:
        """Returns why Celery has to make every message; None if one template serves all."""
        if reason := why_of_celery(self.app):
            return reason
        reasons = {
            "the broker uses another transport": not self._waits_in_redis,
            "a signal of published tasks has receivers": has_receivers(self.name),
            "a router of task_routes may look at arguments": is_routed_by_code(self.app, self.name, self.options),
            "its class has its own apply_async or shadow_name, or pydantic arguments": (
                self.task is not None and not applies_as_celery(self.task)
            ),
            "if_waiting is given, and celery_ext.install(app) was not called": (
                self.options.get("if_waiting") is not None and not is_installed(self.app)
            ),
            "send_task of the app has been replaced": not sends_as_celery(self.app),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def recipe(self, args: Any, kwargs: Any) -> Recipe:
        """Makes Celery send a message to a broker in memory, and returns how others like it are made.

        Args:
            args: Positional arguments of a call.
            kwargs: Its keyword arguments.

        Raises:
            NoTemplate: The task goes to an exchange. Only the broker knows which queues get the message.
        """
        ignores = RESULT_OF_UNKNOWN if self.task is None else self.task.ignore_result
        options = {**self.options, IF_WAITING: ADD} if self.mode is not None else self.options
        if self._declared_limit is not None:
            options = {**options, "limit": ""}  # ``headers_of`` adds the key of each call
        own: dict[str, Any] = {"task_id": PLACEHOLDERS.task_id, "eta": PLACEHOLDERS.eta}
        if self.expires is not None:
            own["expires"] = EXPIRES
        return _caught(self.app, self.name, partial(self._apply_async, args, kwargs), options, own, ignores)


def recipe_of(
    app: "Celery", task: str, options: Mapping[str, Any], expires: bool | None, headers: bool, **more: Any
) -> Recipe:
    """Makes Celery send a single call to a broker in memory, and returns how others like it are made.

    Args:
        app: The app.
        task: Name of the task.
        options: Options of ``send_task``, without those that differ from call to call.
        expires: Whether the messages expire; None if the calls do not say.
        headers: Whether the calls have headers of their own.
        **more: Further options of ``send_task``, of which the messages have nothing.

    Raises:
        NoTemplate: The messages differ from call to call, or go to no list or to several.
    """
    if not {type(value) for value in options.values()} <= _PLAIN or DEAD_LETTER in options:
        raise NoTemplate("an option is no plain value")
    if not {type(options.get(name)) for name in IN_OPTIONS} <= {str, type(None)}:
        raise NoTemplate("an option that is a text is none here")
    gaps = ("task_id", "eta", "root_id", "parent_id", "reply_to")
    own: dict[str, Any] = {**{name: placeholder(name) for name in gaps}, **more}
    if headers:
        own["headers"] = {PLACEHOLDERS.headers: None}
    if expires is not None:
        own["expires"] = EXPIRES if expires else None
    recipe = _caught(app, task, partial(type(app).send_task, app, task), options, own, RESULT_OF_UNKNOWN)
    if (
        len(recipe.declare) > 1
        or ("expires" in recipe.template.form.gaps) != bool(expires)
        or type(recipe.retry_policy) not in (dict, type(None))
    ):
        raise NoTemplate(f"calls of task {task} differ from each other")
    return recipe


def _caught(
    app: "Celery",
    task: str,
    send: Callable[..., object],
    options: Mapping[str, Any],
    own: Mapping[str, Any],
    ignores_result: Any,
) -> Recipe:
    """Makes Celery send a message to a broker in memory, and returns how others like it are made.

    All messages share the options. ``own`` has what stands for those that differ from message to message.
    ``ignores_result`` is the header of that name if the options do not say.
    """
    ignore_result = options.get("ignore_result", ignores_result)
    broker = broker_options(app)
    with catching(app.amqp.Producer) as catcher:
        # Else the result backend would wait for this result.
        sent_with = {**options, "ignore_result": True, **own}
        send(**sent_with, producer=catcher.producer, add_to_parent=False)
        published = catcher.published
        template = catcher.template(task, None, {"ignore_result": ignore_result}, broker=broker)
    if published is None or template.exchange:
        raise NoTemplate(f"task {task} goes to an exchange")
    sent = published.options
    return Recipe(
        name=task,
        template=template,
        serialize=_serializer(template.serializer, template.compression, published.body[2]),
        codec=serialization.registry._encoders.get(template.serializer),
        headers=_HEADERS | sent["headers"].keys(),
        declare=sent["declare"] or [],
        retry_policy=sent["retry_policy"] if sent["retry"] else None,
        ignore_result=ignore_result,
        task=app._tasks.get(task),
        priority=min(max(template.priority, 0), 9),
        broker=broker,
        in_chain=options.get(CHAIN) is not None,
        is_step=CHAIN_ID in options,
    )


def _serializer(serializer: str, compressed_by: str | None, embed: Any) -> Callable[[Any, Any], bytes]:
    """Returns a function that writes the body of a message; ``embed`` is its third element."""

    def serialize(args: Any, kwargs: Any) -> bytes:
        raw = serialization.dumps((args, kwargs, embed), serializer)[2]
        raw = raw.encode() if isinstance(raw, str) else raw
        return bytes(compression.compress(raw, compressed_by)[0] if compressed_by else raw)

    def serialize_json(args: Any, kwargs: Any) -> bytes:
        try:
            return f"[{to_json(args)}, {to_json(kwargs) if kwargs else '{}'}, {embed_json()}]".encode()
        except Exception as error:  # ``serialize`` raises it as kombu's EncodeError
            logger.debug("kombu writes the arguments of a task: ours fails with %s", type(error).__name__)
            return serialize(args, kwargs)

    embed_json = cache(partial(to_json, embed))
    codec = serialization.registry._encoders.get(serializer)
    is_plain_json = codec is not None and codec.encoder is dumps and not compressed_by
    return serialize_json if is_plain_json else serialize


def why_of_celery(app: "Celery") -> str | None:
    """Returns by which of its settings an app's messages have to be made by Celery; None if by none."""
    conf = app.conf
    if conf.task_protocol == 1:
        return "task_protocol is 1"
    return next((f"{name} is set" for name in ("task_always_eager", "task_send_sent_event") if conf[name]), None)


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
    before, after, sent = _OF_PUBLISHING
    if not (before.receivers or after.receivers or sent.receivers):
        return False
    return any(signal.receivers and signal.has_listeners(task) for signal in _OF_PUBLISHING)


def is_routed_by_code(app: "Celery", task: str, options: Mapping[str, Any]) -> bool:
    """Whether a router of an app may send each call of a task with these options to another queue."""
    return not all(
        isinstance(router, MapRoute)
        or (isinstance(router, ShardRouter) and (bool(options.get("queue")) or not router.routes(task)))
        for router in app.amqp.router.routes
    )
