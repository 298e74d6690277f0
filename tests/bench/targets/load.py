"""Task messages of 1 KB, offered to the store many in a call."""

import random
from time import time
from typing import Any
from uuid import uuid4

from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer

QUEUE = "bench"
BODY_BYTES = 1000
HOUR_MS = 3_600_000
PER_CALL = 200

#: As Celery writes a task.
_MESSAGE = (
    '{"body": "%(body)s", "content-encoding": "utf-8", "content-type": "application/json", "headers": {"lang": "py", '
    '"task": "bench.arrive", "id": "%(id)s", "shadow": null, "eta": "2026-11-21T15:04:05.123456+00:00", '
    '"expires": null, "group": null, "group_index": null, "retries": 0, "timelimit": [null, null], '
    '"root_id": "%(id)s", "parent_id": null, "argsrepr": "()", "kwargsrepr": "{}", "origin": "gen1@bench", '
    '"ignore_result": false, "stamped_headers": null, "stamps": {}}, "properties": {"correlation_id": "%(id)s", '
    '"delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "bench"}, "priority": 0, '
    '"body_encoding": "base64", "delivery_tag": "%(id)s"}}'
)
_FIXED_BYTES = len(_MESSAGE % {"id": "", "body": ""})


def message(task_id: str) -> str:
    """Returns a task message of ``BODY_BYTES`` bytes, as it is pushed to its queue."""
    return _MESSAGE % {"id": task_id, "body": "x" * (BODY_BYTES - _FIXED_BYTES - 4 * len(task_id))}


def make_store(client: Any, layout: str) -> DelayStore:
    """Makes a store that keeps messages in a layout."""
    return DelayStore(client, options=Options(layout=layout))


def fill(store: DelayStore, count: int) -> None:
    """Offers messages with UUIDs as ids, as tasks have. Their due times are random within the last hour."""
    now_ms = time() * 1000
    for start in range(0, count, PER_CALL):
        ids = [str(uuid4()) for _ in range(min(PER_CALL, count - start))]
        offers = [Offer(each, repr(now_ms - random.random() * HOUR_MS), 0, message(each)) for each in ids]
        store.delivery.offer(QUEUE, *offers)
