"""Declares a queue that is spread over several, and lets workers consume all of its parts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kombu.entity import Exchange, Queue

from kombu_delayq.options.spread import part_of, parts_of, spread_queues

if TYPE_CHECKING:
    from celery import Celery


@dataclass(frozen=True)
class Spread:
    """A queue whose messages are in several queues, its parts. ``spread`` makes one.

    Attributes:
        name: The queue to which tasks are sent.
        count: Number of parts.
        tasks: Names of tasks, or patterns such as ``shop.*``, for ``router``.
    """

    name: str
    count: int
    tasks: tuple[str, ...] = ("*",)

    @property
    def parts(self) -> list[str]:
        """Names of the parts: ``orders.0``, ``orders.1`` and so on."""
        return parts_of(self.name, self.count)

    @property
    def queues(self) -> list[Queue]:
        """The parts for ``task_queues``, and before them the queue itself, where publishers without the option put."""
        return [Queue(name, Exchange(name), routing_key=name) for name in (self.name, *self.parts)]

    @property
    def router(self) -> dict[str, dict[str, str]]:
        """Sends ``tasks`` to the queue: an entry for ``task_routes``, or all of it."""
        return {pattern: {"queue": self.name} for pattern in self.tasks}

    @property
    def transport_options(self) -> dict[str, dict[str, int]]:
        """What ``broker_transport_options`` needs."""
        return {"queue_parts": {self.name: self.count}}

    def part_of(self, task_id: str) -> str:
        """Returns the queue that gets a task."""
        return part_of(self.name, self.count, task_id)

    def install(self, app: "Celery[Any]") -> "Spread":
        """Lets an app spread the queue. Where ``task_queues`` is set, adds the parts to it.

        It changes the settings of the app, so all its publishers spread the queue. Call it when the app has its
        settings, and before it connects. Returns the same object.
        """
        conf = app.conf
        options = dict(conf.broker_transport_options or {})
        conf.broker_transport_options = options | {
            "queue_parts": {**options.get("queue_parts", {}), self.name: self.count}
        }
        if given := conf.task_queues:
            names = set(given) if isinstance(given, Mapping) else {queue.name for queue in given}
            added = {queue.name: queue for queue in self.queues if queue.name not in names}
            conf.task_queues = {**given, **added} if isinstance(given, Mapping) else [*given, *added.values()]
        return self


def spread(name: str, parts: int, *, tasks: Iterable[str] = ("*",)) -> Spread:
    """Spreads a queue over several, so that more than one node of a Redis Cluster serves it.

    Publishers send tasks to the queue by its own name. The transport puts each into one of the parts, which it picks by
    the task id, so a retry and a repeated message go where the first one went. Messages keep their order within a part.

    Args:
        name: The queue to which tasks are sent.
        parts: Number of parts, 1 to 1000.
        tasks: Names of tasks, or patterns such as ``shop.*``, that ``router`` sends to it; by default all.

    Returns:
        Its queues, router and options; ``install`` gives them to an app.

    Raises:
        ValueError: The name is empty, or the number of parts is none.
    """
    spread_queues({name: parts})
    return Spread(name, parts, tuple(tasks))


def consume_parts(instance: Any, **kwargs: Any) -> None:
    """Lets a starting worker that consumes a queue consume its parts, too, such as with ``-Q orders``.

    Args:
        instance: The worker.
        **kwargs: Further arguments of the signal ``celeryd_after_setup``.
    """
    queues = instance.app.amqp.queues
    for name, count in ((instance.app.conf.broker_transport_options or {}).get("queue_parts") or {}).items():
        if name in queues.consume_from:
            whole = queues[name]
            for part in parts_of(name, count):
                if part not in queues.consume_from:
                    queues.select_add(_like(whole, part))


def _like(whole: Any, part: str) -> Queue:
    """Returns a queue of another name with the arguments of a queue."""
    return Queue(
        part,
        Exchange(part),
        routing_key=part,
        durable=whole.durable,
        exclusive=whole.exclusive,
        auto_delete=whole.auto_delete,
        expires=whole.expires,
        max_priority=whole.max_priority,
        no_ack=whole.no_ack,
        queue_arguments=whole.queue_arguments,
    )
