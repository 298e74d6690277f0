"""How messages of one task with the same options are made and published."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from celery import Celery
from kombu import serialization
from kombu.entity import Queue

from celery_ext.bulk.messages import body_serializer
from celery_ext.bulk.target import RESULT_OF_UNKNOWN, broker_options
from celery_ext.bulk.template import EXPIRES, PLACEHOLDERS, NoTemplate, Template, catching
from kombu_delayq.message.fields import CHAIN, CHAIN_ID
from kombu_delayq.message.letters import DEAD_LETTER

#: Types of options that a template may contain.
_PLAIN = frozenset((str, int, float, bool, type(None)))
#: Names of the headers that every message has: further headers of a call must not replace them.
_HEADERS = frozenset(("compression", "argsrepr", "kwargsrepr"))


class Slots(NamedTuple):
    """The parts that differ from call to call, as JSON texts. Those of ``celery_ext.bulk`` mean the same there.

    Attributes:
        origin: Name of the process that first sent the task, if the call has it.
        reply_to: Where the RPC result backend sends the result.
        chain_id: Id of the delay chain.
    """

    body: str
    task_id: str
    eta: str
    expires: str
    expiration: str
    root_id: str
    parent_id: str
    argsrepr: str
    kwargsrepr: str
    headers: str
    delivery_tag: str
    origin: str
    reply_to: str
    chain_id: str


_OWN = {name: f"delayq-slot-{name}-{uuid4()}" for name in ("origin", "reply_to", "chain_id")}
_PLACEHOLDERS: Mapping[str, str] = {**PLACEHOLDERS._asdict(), **_OWN}
#: Options that a message has in its headers, its properties or both, and that may differ from call to call; and what
#: stands for their texts.
IN_OPTIONS = {
    "origin": _OWN["origin"],
    "argsrepr": PLACEHOLDERS.argsrepr,
    "kwargsrepr": PLACEHOLDERS.kwargsrepr,
    CHAIN_ID: _OWN["chain_id"],
}


class Recipe(NamedTuple):
    """How messages of one task with the same options are made and published.

    Attributes:
        name: Name of the task.
        template: The message with ``Slots``.
        serialize: Writes a body from arguments.
        codec: The serializer that ``serialize`` uses, as kombu knows it.
        headers: Names of all headers.
        queue: The queue that is declared before a message is published; None for none.
        retry_policy: As of ``Connection.ensure``; None to try once only.
        ignore_result: As of ``apply_async``.
        task: What the app has under the name of the task.
        priority: 0 to 9.
        repr_maxsize: The transport option.
        in_chain: Whether the messages have a delay chain.
        is_step: Whether they are steps of a delay chain.
    """

    name: str
    template: Template
    serialize: Callable[[Any, Any], bytes]
    codec: Any
    headers: frozenset[str]
    queue: Queue | None
    retry_policy: dict[str, Any] | None
    ignore_result: Any
    task: Any
    priority: int
    repr_maxsize: int | None
    in_chain: bool
    is_step: bool

    def still_holds(self, app: Celery, queues: dict[str, Queue]) -> bool:
        """Whether the task, the queue and the serializer are those that the recipe was made of.

        Args:
            app: The app.
            queues: Its table of queues, ``app.amqp.queues``.
        """
        queue = self.queue
        return (
            app._tasks.get(self.name) is self.task
            and (queue is None or dict.get(queues, queue.name) is queue)
            and serialization.registry._encoders.get(self.template.serializer) is self.codec
        )


def recipe_of(
    app: Celery, task: str, options: Mapping[str, Any], expires: bool | None, headers: bool, **more: Any
) -> Recipe:
    """Makes Celery send a message to a broker in memory, and returns how others like it are made.

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
    if headers:
        more["headers"] = {_PLACEHOLDERS["headers"]: None}
    if expires is not None:
        more["expires"] = EXPIRES if expires else None
    slots = {name: _PLACEHOLDERS[name] for name in ("task_id", "eta", "root_id", "parent_id", "reply_to")}
    ignore_result = options.get("ignore_result", RESULT_OF_UNKNOWN)
    with catching(app.amqp.Producer) as catcher:
        type(app).send_task(
            app,
            task,
            **slots,
            **more,
            # Else the result backend would wait for this result.
            **{**options, "ignore_result": True},
            producer=catcher.producer,
            add_to_parent=False,
        )
        broker = broker_options(app)
        template = catcher.template(task, None, {"ignore_result": ignore_result}, _PLACEHOLDERS, broker=broker)
        published = catcher.published
    if published is None or template.exchange:
        raise NoTemplate(f"task {task} goes to an exchange")
    sent = published.options
    declare = sent["declare"] or []
    if (
        len(declare) > 1
        or ("expires" in template.form.slots) != bool(expires)
        or type(sent["retry_policy"]) is not dict
    ):
        raise NoTemplate(f"calls of task {task} differ from each other")
    return Recipe(
        name=task,
        template=template,
        serialize=body_serializer(template.serializer, template.compression, published.body[2]),
        codec=serialization.registry._encoders.get(template.serializer),
        headers=_HEADERS | sent["headers"].keys(),
        queue=declare[0] if declare else None,
        retry_policy=sent["retry_policy"] if sent["retry"] else None,
        ignore_result=ignore_result,
        task=app._tasks.get(task),
        priority=min(max(template.priority, 0), 9),
        repr_maxsize=broker.repr_maxsize,
        in_chain=options.get(CHAIN) is not None,
        is_step=CHAIN_ID in options,
    )
