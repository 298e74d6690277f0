"""Messages for ``delayq export``, and the lines that it writes."""

import json
from typing import Any

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.types import Offer
from tests.support.commands.shell import run

FUTURE_MS = 4_102_444_800_000.0


def message(identity: str, task_id: str | None = None, **more: Any) -> str:
    """Makes a message as kombu keeps it."""
    info = {"exchange": "", "routing_key": "q"}
    properties = {"delivery_tag": f"tag of {identity}", "delivery_info": info, "priority": 0, **more}
    headers = {"task": "proj.record", "id": task_id or identity}
    return json.dumps({"body": "W1tdLCB7fSwge31d", "headers": headers, "properties": properties})


def offer(identity: str, due_ms: float = FUTURE_MS, priority: int = 0, body: str | bytes = "") -> Offer:
    return Offer(identity, repr(due_ms), priority, body or message(identity))


def keys(raw_client: redis.Redis) -> dict[bytes, Any]:
    """Returns everything that our keys hold, except for the counts of marked messages."""
    found: dict[bytes, Any] = {}
    for key in raw_client.keys("delayq:*"):
        kind = raw_client.type(key)
        if kind == b"zset":
            found[key] = raw_client.zrange(key, 0, -1, withscores=True)
        elif kind == b"hash":
            found[key] = raw_client.hgetall(key)
        elif kind == b"set":
            found[key] = raw_client.smembers(key)
    return found


def exported(broker: PrivateRedis, *args: str, **expected: Any) -> list[str]:
    """Returns the lines of an export."""
    return run(broker, "export", *args, **expected).stdout.splitlines()
