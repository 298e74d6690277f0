"""A consumer decodes no body for an eta that it does not accept."""

import base64
import json
import pickle
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Queue
from kombu.exceptions import ContentDisallowed

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message import bodies
from tests.support.messages import ETA
from tests.support.workers.harness import TRANSPORT

#: 28 bytes for whose memo Python's own reader of pickles takes 2 GB, and a task of protocol 1 with an eta beside it.
HOSTILE = b"\x80\x02]r\xff\xff\xff\x0fX\x03\x00\x00\x00etaX\x04\x00\x00\x00task."


def push(client: redis.Redis, kind: str, raw: bytes) -> None:
    info = {"exchange": "", "routing_key": "orders"}
    properties = {"delivery_tag": "t", "delivery_info": info, "body_encoding": "base64", "correlation_id": "i"}
    message = {
        "body": base64.b64encode(raw).decode(),
        "content-type": kind,
        "content-encoding": "binary",
        "headers": {},
        "properties": properties,
    }
    client.lpush("orders", json.dumps(message))


@pytest.mark.parametrize("accept", [["json"], None], ids=["json", "default"])
@pytest.mark.parametrize("kind", [bodies.PICKLE, bodies.YAML])
def test_what_a_consumer_does_not_accept_it_does_not_decode(
    redis_server: PrivateRedis,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    accept: list[str] | None,
) -> None:
    """A pickle or YAML comes to a consumer of JSON, or to one that says nothing, and is refused unread, as by kombu."""
    read, found = list[object](), list[Any]()
    monkeypatch.setattr(bodies, "loads", lambda raw, *args: read.append(raw))
    push(client, kind, HOSTILE)
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        consumer = Consumer(
            connection,
            [Queue("orders")],
            accept=accept,
            callbacks=[lambda body, message: found.append(body)],
            on_decode_error=lambda message, error: found.append(type(error)),
        )
        with consumer:
            connection.drain_events(timeout=30)
    assert (found, read) == ([ContentDisallowed], [])


def test_what_it_accepts_is_adopted(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """An eta in a pickle of protocol 1 counts for a consumer of pickles, for which it is far ahead."""
    task = {"task": "t", "id": "i", "args": [], "kwargs": {}, "eta": ETA}
    push(client, bodies.PICKLE, pickle.dumps(task))
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        delivered = list[Any]()
        with Consumer(connection, [Queue("orders")], accept=["pickle"], callbacks=[lambda *it: delivered.append(it)]):
            connection.drain_events(timeout=30)
        assert delivered == []
        assert connection.default_channel.store.queues.size("orders") == 1
