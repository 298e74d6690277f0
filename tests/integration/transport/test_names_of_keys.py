"""A queue cannot have the name of a key of ours, of kombu's or of Redisson's: a list there would stop all workers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection

from celery_ext import Call, asend, install, send_many
from celery_ext.dead_letters.store import Letter, LetterStore
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.job_types import JobRun
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.store.types import DelayedQueue, Offer, Request
from tests.support.store.jobs import jobs
from tests.support.workers.harness import TRANSPORT

PAUSED = "{delayq}:paused"
NAMES = [PAUSED, "unacked", "unacked_index", "_kombu.binding.celery", "redisson_delay_queue:{celery}"]


@pytest.fixture
def app(redis_server: PrivateRedis, client: redis.Redis) -> Celery:
    app = Celery("names", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    install(app, fast_publish=True)

    @app.task(name="t", shared=False)
    def task(number: int = 0) -> None: ...

    return app


OF_APP: dict[str, Callable[[Celery, str], Any]] = {
    "now": lambda app, queue: app.tasks["t"].apply_async(queue=queue),
    "delayed": lambda app, queue: app.tasks["t"].apply_async(queue=queue, countdown=60),
    "by name": lambda app, queue: app.send_task("other", queue=queue, priority=9),
    "if_waiting": lambda app, queue: app.tasks["t"].apply_async(
        queue=queue, task_id="i", if_waiting="keep", countdown=60
    ),
    "chain": lambda app, queue: app.tasks["t"].apply_async(queue=queue, countdown=60, delay_chain="1m"),
    "send_many": lambda app, queue: send_many(app, "t", [Call((1,)), Call((1,), countdown=60)], queue=queue),
    "asend": lambda app, queue: asyncio.run(asend(app, "t", queue=queue)),
}


@pytest.mark.parametrize("way", OF_APP)
@pytest.mark.parametrize("queue", NAMES)
def test_no_app_publishes_to_such_a_name(app: Celery, client: redis.Redis, way: str, queue: str) -> None:
    """Each way to publish refuses the name, before anything is written."""
    with pytest.raises(InvalidQueueName, match="kept for keys"):
        OF_APP[way](app, queue)
    assert [key for key in client.keys("*") if client.type(key) == "list"] == []


def _raw(channel: Any, queue: str, **properties: Any) -> None:
    message = channel.prepare_message("body", properties={"delivery_mode": 2, **properties})
    channel.basic_publish(message, exchange="", routing_key=queue)


OF_CHANNEL: dict[str, Callable[[Any, str], Any]] = {
    "publish": lambda channel, queue: _raw(channel, queue),
    "delayed": lambda channel, queue: _raw(channel, queue, DelaySeconds=60),
    "declare": lambda channel, queue: channel.queue_declare(queue),
    "get": lambda channel, queue: channel.basic_get(queue, no_ack=True),
    "purge": lambda channel, queue: channel.queue_purge(queue),
    "import": lambda channel, queue: channel.store.delivery.offer(queue, Offer("i", "1", 0, "body")),
    "bury": lambda channel, queue: channel.store.delivery.bury(DelayedQueue("celery", "hash"), [], queue),
    "replay": lambda channel, queue: _replay(channel.store, queue),
    "take": lambda channel, queue: channel.store.fetching.fetch(Request("", 0, 1, [queue], unnoted=[queue])),
    "spark": lambda channel, queue: _enqueue(channel.store, queue),
}


def _replay(store: Any, queue: str) -> None:
    store.client.lpush("dead", "letter")
    store.part(LetterStore).replay("dead", "dead", {0: Letter(b"letter", "queue", queue, 0, b"body")})


def _enqueue(store: Any, queue: str) -> None:
    job = JobRun("j", 1, 600_000)
    jobs(store).begin(job)
    jobs(store).enqueue(queue, job, [Offer("i", "", 0, "body")])


@pytest.mark.parametrize("way", OF_CHANNEL)
@pytest.mark.parametrize("queue", [PAUSED, "unacked"])
def test_no_other_way_leads_to_such_a_name(
    redis_server: PrivateRedis, client: redis.Redis, way: str, queue: str
) -> None:
    """Plain kombu, import, replay, dead letters, take and Spark refuse it, too, and leave the key as it is."""
    client.hset(queue, "field", "value")
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        channel: DelayedChannel = connection.default_channel
        with pytest.raises(InvalidQueueName, match="kept for keys"):
            OF_CHANNEL[way](channel, queue)
    assert client.hgetall(queue) == {"field": "value"}


def test_the_prefix_stands_before_such_names(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """With a key prefix the names behind it are refused."""
    options = {"global_keyprefix": "shop."}
    with Connection(redis_server.url, transport=TRANSPORT, transport_options=options) as connection:
        with pytest.raises(InvalidQueueName):
            _raw(connection.default_channel, PAUSED)
        _raw(connection.default_channel, "redisson_delay_queue:{celery}")
    assert client.keys("*") == ["shop.redisson_delay_queue:{celery}"]
