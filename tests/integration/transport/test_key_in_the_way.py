"""A key of the wrong type where delayed messages are kept: said clearly, and nothing is lost or double."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import redis
from kombu import Connection
from kombu.exceptions import OperationalError

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.channel import connect_store
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import DEADLINE_S, stays, until
from tests.support.workers.harness import TRANSPORT, MakeProj

HARMED, SOUND = "orders", "mails"
DUE, BODIES, ORDER = range(3)  # which of the keys of a queue
QUEUES, LEASE = "{delayq}:queues", "{delayq}:transfer"


@pytest.fixture
def connection(redis_server: PrivateRedis, client: redis.Redis, layout: str) -> Iterator[Connection]:
    options = {"poll_interval": 0.2, "layout": layout}
    with Connection(redis_server.url, transport=TRANSPORT, transport_options=options) as connection:
        yield connection


@contextmanager
def _transferring(connection: Connection) -> Iterator[TransferWorker]:
    channel = connection.default_channel
    worker = TransferWorker(partial(connect_store, channel, channel.separate_pool()))
    worker.start()
    try:
        yield worker
    finally:
        worker.stop(DEADLINE_S)


def _publish(connection: Connection, queue: str, delay_s: float, task_id: str) -> None:
    headers = {"id": task_id, "task": "t"}
    connection.Producer().publish({"n": task_id}, routing_key=queue, headers=headers, DelaySeconds=delay_s)


def _stored(connection: Connection) -> list[str]:
    """Returns the keys of the harmed queue that every queue with messages may have."""
    store = connection.default_channel.store
    return list(LAYOUT_OF[store.layout].keys(store.keys, HARMED)[:3])


def _name(connection: Connection, which: int | str) -> str:
    return _stored(connection)[which] if isinstance(which, int) else which


def _ready(client: redis.Redis, queue: str) -> Callable[[], bool]:
    return lambda: client.llen(queue) == 1


def test_a_queue_that_is_no_list_has_no_count(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Redis says that the key has another type, as with stock kombu."""
    client.set(HARMED, "no list")
    with (
        Connection(redis_server.url, transport=TRANSPORT) as connection,
        pytest.raises(redis.ResponseError, match="WRONGTYPE"),
    ):
        connection.default_channel._size(HARMED)


@pytest.mark.both_layouts
@pytest.mark.parametrize("which", [DUE, BODIES, HARMED, f"{HARMED}\x06\x166"])
def test_transfer_goes_on_with_other_queues(
    connection: Connection, client: redis.Redis, caplog: pytest.LogCaptureFixture, which: int | str
) -> None:
    """The transfer names the key once and serves other queues; the harmed one goes on when the key is away."""
    stored, key = _stored(connection), _name(connection, which)
    _publish(connection, HARMED, 0.5, "a")
    _publish(connection, SOUND, 0.5, "b")
    there = client.exists(key)
    if there:
        client.rename(key, "aside{orders}")
    client.set(key, "in the way")
    with caplog.at_level(logging.ERROR), _transferring(connection) as worker:
        until(_ready(client, SOUND), what="the sound queue is served")
        until(lambda: key in caplog.text, what="the key is named")
        _publish(connection, SOUND, 0.5, "c")
        until(lambda: client.llen(SOUND) == 2, what="the sound queue is still served")
        stays(lambda: len(caplog.records) == 1, 1, "said once")
        client.delete(key)
        if there:
            client.rename("aside{orders}", key)
        until(_ready(client, HARMED), what="the harmed queue is served again")
        stays(_ready(client, HARMED), 0.5, "delivered once")
        assert worker.leading
    assert not client.exists(*stored[:2])


@pytest.mark.parametrize("key", [QUEUES, LEASE])
def test_transfer_waits_until_a_shared_key_is_away(
    connection: Connection, client: redis.Redis, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    """A key that all queues share is named once; delivery goes on by itself when it is away."""
    _publish(connection, HARMED, 1, "a")
    there = client.exists(key)
    if there:
        client.rename(key, f"{key}:aside{{delayq}}")
    client.hset(key, "in", "the way")
    with caplog.at_level(logging.ERROR), _transferring(connection):
        until(lambda: key in caplog.text, what="the key is named")
        stays(lambda: len(caplog.records) == 1 and not client.exists(HARMED), 1.5, "said once")
        client.delete(key)
        if there:
            client.rename(f"{key}:aside{{delayq}}", key)
        until(_ready(client, HARMED), what="delivered")
        stays(_ready(client, HARMED), 0.5, "delivered once")


@pytest.mark.parametrize("which", [DUE, "celery"])
def test_no_error_has_the_arguments_of_a_task(make_proj: MakeProj, client: redis.Redis, which: int | str) -> None:
    """What is raised where Redis refuses messages has nothing of what is in them: it comes into logs."""
    proj = make_proj()
    with proj.connection() as connection:
        store = connection.default_channel.store
        client.set(
            LAYOUT_OF[store.layout].keys(store.keys, "celery")[which] if isinstance(which, int) else which, "harm"
        )
    calls = [Call(("s3cret-argument",), countdown=60 if which == DUE else None)]
    with pytest.raises((OperationalError, redis.ResponseError)) as many:
        send_many(proj.app, "proj.record", calls, argsrepr="hidden")
    with pytest.raises((OperationalError, redis.ResponseError)) as single:
        proj.send("record", "s3cret-argument", countdown=calls[0].countdown, argsrepr="hidden")
    for error in (many.value, single.value):
        assert "s3cret-argument" not in str(error)
        assert '"body"' not in str(error)
        assert len(str(error)) < 200
