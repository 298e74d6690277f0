"""Many waiting tasks at once."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from celery_ext import cancel, get
from kombu_delayq.store.types import Offer
from tests.support.workers.harness import Proj

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fill(proj: Proj, queue: str, tasks: Iterable[tuple[str, datetime]], **options: Any) -> None:
    """Stores tasks of a queue, faster than publishing them one by one. The tasks note that they run.

    Args:
        proj: The app.
        queue: Name of the queue.
        tasks: Id and eta of each task; their priorities are 0 to 9 in turn.
        **options: Options of ``send_task`` for all tasks.
    """
    proj.send("record", queue=queue, countdown=300, task_id="model", **options)
    model = get(proj.app, "model")
    assert model is not None
    offers = (_offer(model.body, n % 10, *task) for n, task in enumerate(tasks))
    with proj.connection() as connection:
        while part := list(islice(offers, 500)):
            connection.default_channel.store.delivery.offer(queue, *part)
    assert cancel(proj.app, "model") == "cancelled"


def _offer(model: dict[str, Any], priority: int, task_id: str, eta: datetime) -> Offer:
    body = {
        **model,
        "headers": {**model["headers"], "id": task_id, "root_id": task_id, "eta": eta.isoformat()},
        "properties": {**model["properties"], "correlation_id": task_id, "delivery_tag": task_id, "priority": priority},
    }
    return Offer(task_id, repr((eta - EPOCH) / timedelta(milliseconds=1)), priority, json.dumps(body))
