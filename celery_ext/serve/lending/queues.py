"""From which queues messages can be taken."""

import re
from math import inf
from time import monotonic

from celery import Celery

from kombu_delayq.store import OperatorStore

#: Queues to which kombu and Celery send commands, replies to them, and events: of every node its own.
_OWN = re.compile(r"celeryev\..*|.*\.pidbox|.*\.reply\.celery\.pidbox", re.DOTALL)

#: For how long a queue that exists is not asked for again, in s.
KNOWN_S = 60.0


def is_broadcast(app: Celery, queue: str) -> bool:
    """Whether a queue is no list of messages: it belongs to Celery's remote control and events, or to a fanout."""
    declared = app.amqp.queues.get(queue) if queue in app.amqp.queues else None
    exchange = getattr(declared, "exchange", None)
    return bool(_OWN.fullmatch(queue)) or getattr(exchange, "type", None) == "fanout"


class KnownQueues:
    """Knows for a while which queues exist, so that a take need not ask Redis for it. Threads may share it."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def has(self, app: Celery, store: OperatorStore, queue: str) -> bool:
        """Whether the app declares a queue, or anybody has used it."""
        if self._until.get(queue, -inf) > monotonic():
            return True
        if queue not in app.amqp.queues and not store.queues.exists(queue):
            return False
        self._until[queue] = monotonic() + KNOWN_S
        return True
