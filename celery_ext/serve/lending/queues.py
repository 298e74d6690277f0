"""From which queues messages can be taken."""

import re

from celery import Celery

from kombu_delayq.store import OperatorStore

#: Queues to which kombu and Celery send commands, replies to them, and events: of every node its own.
_OWN = re.compile(r"celeryev\..*|.*\.pidbox|.*\.reply\.celery\.pidbox", re.DOTALL)


def is_broadcast(app: Celery, queue: str) -> bool:
    """Whether a queue is no list of messages: it belongs to Celery's remote control and events, or to a fanout."""
    declared = app.amqp.queues.get(queue) if queue in app.amqp.queues else None
    exchange = getattr(declared, "exchange", None)
    return bool(_OWN.fullmatch(queue)) or getattr(exchange, "type", None) == "fanout"


def is_known(app: Celery, store: OperatorStore, queue: str) -> bool:
    """Whether the app declares a queue, or anybody has used it."""
    return queue in app.amqp.queues or store.queues.exists(queue)
