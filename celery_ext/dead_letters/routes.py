"""Where dead letters lie, and whence they came: what the app and its bindings say."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from celery_ext.dead_letters.letters import DeadLetter, LetterAction, to_queue
from celery_ext.dead_letters.store import Letter
from kombu_delayq.options import Options

if TYPE_CHECKING:
    from celery import Celery


def named_by(app: "Celery[Any]") -> list[str]:
    """Returns the queues of dead letters that a task or the delivery limit of an app names."""
    app.loader.import_default_modules()
    named = {getattr(task, "dead_letter_queue", None) for task in app.tasks.values()}
    options = app.conf.broker_transport_options or {}
    if options.get("delivery_limit", Options().delivery_limit) is not None:
        named.add(options.get("dead_letter_queue", Options().dead_letter_queue))
    return sorted(name for name in named if isinstance(name, str))


def sending(channel: Any, app: "Celery[Any] | None", to: str | None = None) -> LetterAction:
    """Makes the action that sends a dead letter to a queue.

    It can do nothing with a letter that lies in that queue, or whose queue nobody knows: the letter does not name its
    exchange, or the exchange is now bound to no queue for the letter's routing key, or to several. Nor can it where no
    queue may have this name.

    Args:
        channel: A channel of one of our transports, to read the bindings.
        app: The app, which knows exchanges; None without one.
        to: Name of the queue; None for the queue from which the letter came.
    """
    exchanges = (queue.exchange for queue in (app.amqp.queues.values() if app is not None else ()))
    fanouts = {exchange.name for exchange in exchanges if exchange and exchange.type == "fanout"}

    @cache
    def queue_of(exchange: str | None, routing_key: str | None) -> str | None:
        if exchange is None or routing_key is None or exchange in fanouts:  # what a fanout sends waits in no queue
            return None
        if not exchange:
            return routing_key if routing_key and channel.key_names.is_usable(routing_key) else None
        # Source: kombu.transport.virtual.exchange: a topic exchange has a pattern in its bindings, a direct one none.
        queues = {
            queue
            for key, pattern, queue in channel.get_table(exchange)
            if (re.match(pattern, routing_key) if pattern else key == routing_key)
        }
        return queues.pop() if len(queues) == 1 else None

    def send(letter: DeadLetter) -> Letter | None:
        queue = to or queue_of(letter.exchange, letter.routing_key)
        return None if queue in (None, letter.buried_in) else to_queue(letter, str(queue), as_before=to is None)

    return send
