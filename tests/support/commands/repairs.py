"""A queue for ``delayq repair``, and the messages that are delivered from it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer

PAST = datetime(2020, 1, 1, tzinfo=UTC)
#: Messages of each test. Three have the same due time, and every fifth has a priority.
COUNT = 300
SOUND = {"lost": 0, "unindexed": 0, "undated": 0, "unnamed": 0, "landed": 0, "held": 0, "unreadable": 0}
SOUND |= {"unknown": False, "error": None, "examples": {}}


def message(identity: str, eta: datetime | None = None, tag: str = "") -> str:
    """Makes a task's message as kombu keeps it."""
    properties = {"delivery_tag": tag or identity, "delivery_info": {"exchange": "", "routing_key": "q"}}
    headers = {"task": "t", "id": identity, "eta": eta and eta.isoformat()}
    return json.dumps({"body": "W1tdLCB7fSwge31d", "headers": headers, "properties": {**properties, "priority": 0}})


def offer(n: int, identity: str = "", priority: int = 0) -> Offer:
    """Makes an offer of a message that has long been due. Three numbers in a row have the same due time."""
    eta = PAST + timedelta(milliseconds=n // 3 * 10.125)
    due_ms = (eta - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
    return Offer(identity or f"t{n}", repr(due_ms), priority, message(identity or f"t{n}", eta, f"tag {n}"))


def delivered(store: DelayStore, queue: str = "q") -> list[int]:
    """Transfers all that is due. Returns the numbers in the tags of what was pushed to the queue's list."""
    while store.delivery.transfer(queue).moved:
        pass
    bodies = [*store.client.lrange(queue, 0, -1)[::-1], *store.client.lrange(f"{queue}\x06\x163", 0, -1)[::-1]]
    return [int(json.loads(body)["properties"]["delivery_tag"].split()[1]) for body in bodies]


def expected(gone: Callable[[int], bool] = lambda n: False) -> list[int]:
    """Returns the numbers of the messages in the order of delivery: those without a priority, then the others."""
    plain, urgent = ([n for n in range(COUNT) if (n % 5 == 0) == first and not gone(n)] for first in (False, True))
    return plain + urgent
