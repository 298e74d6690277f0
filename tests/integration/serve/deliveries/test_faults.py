"""Servers that are killed, replies that are lost, a Redis that is away, and workers beside: nothing is lost."""

from collections import Counter
from typing import Any

import pytest
import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.redis import scripts
from tests.integration.serve.deliveries.conftest import send
from tests.support.conditions import until
from tests.support.serve.http_consumers import HttpConsumer, Serve
from tests.support.servers.proxies import LosesReply
from tests.support.workers.harness import MakeProj
from tests.support.workers.held import in_hand
from tests.support.workers.transfers import Transfer

TAKE = "/v1/queues/orders:take"


def test_a_server_that_is_killed_loses_nothing(app: Celery, serve: Serve, client: redis.Redis) -> None:
    """After SIGKILL another process acknowledges, extends and releases what the first one handed out."""
    send(app, 1, 2, 3)
    killed = serve()
    taken = HttpConsumer(killed).take(max=3)
    killed.kill()
    consumer = HttpConsumer(serve())
    assert consumer.of(taken, "extend", seconds=60)["held"] == ["1", "2", "3"]
    assert consumer.ack(taken, "1", "3")["acknowledged"] == ["1", "3"]
    assert consumer.of(taken, "release", tags=["2"])["released"] == ["2"]
    assert client.llen("orders") == 1
    assert not client.exists("unacked", "unacked_index", "{delayq}:consumers")


def test_messages_whose_answer_is_lost_come_again(
    app: Celery, serve: Serve, redis_server: PrivateRedis, transfer: Transfer
) -> None:
    """If Redis has taken messages and its reply is lost, the caller learns that, and they come when the lease ends."""
    transfer(poll_interval=0.05, consumer_ttl=1)
    with LosesReply(redis_server.port, scripts.load("fetch", "hash").sha.encode()) as proxy:
        consumer = HttpConsumer(serve(proxy.url))
        send(app, 0, 1, 2)
        consumer.ack(consumer.take())  # Redis knows the script from now on
        proxy.arm()
        assert consumer.refused(f"{TAKE}?max=5&lease=1s") == (503, "broker-unavailable")
        assert proxy.lost == 1
        found = []
        until(lambda: found.extend(consumer.take(wait="5s", max=5)["messages"]) or len(found) == 2)
        assert [(message["args"][0], message["delivery_count"]) for message in found] == [(1, 1), (2, 1)]


def test_an_ack_whose_answer_is_lost_has_been_made(
    app: Celery, serve: Serve, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """The caller asks again, and learns that the lease holds nothing any more."""
    with LosesReply(redis_server.port, scripts.load("ack", "hash").sha.encode()) as proxy:
        consumer = HttpConsumer(serve(proxy.url))
        send(app, 0, 1)
        consumer.ack(consumer.take())
        taken = consumer.take()
        proxy.arm()
        path = f"/v1/leases/{taken['lease']['id']}:ack"
        first = consumer.client.post(path, json={"tags": ["1"]})
        assert proxy.lost == 1
        assert first.status_code in (200, 410, 503)
        assert consumer.client.post(path, json={"tags": ["1"]}).status_code in (200, 410)
        assert not client.exists("unacked", "unacked_index", "orders")


@pytest.mark.parametrize("transport", ["ours", pytest.param("stock", marks=pytest.mark.nightly)])
def test_consumers_and_workers_share_a_queue(
    make_proj: MakeProj, serve: Serve, client: redis.Redis, transport: str
) -> None:
    """Beside a Celery worker, of ours or stock, each message is run by the worker or handed out, and only once."""
    proj = make_proj(**({"broker_transport": ""} if transport == "stock" else {}))
    consumer = HttpConsumer(serve())
    for number in range(90):
        proj.send("busy", 0.06, number)
    found = Counter[Any]()

    def take() -> None:
        taken = consumer.take("celery", max=3, wait="0.2s")
        found.update(message["args"][1] for message in taken["messages"])
        if taken["lease"]:
            consumer.ack(taken)

    take()
    proj.worker(pool="solo", wait=False)
    proj.await_runs(1)
    while client.llen("celery"):
        take()
    runs = until(lambda: done if len(done := proj.runs()) + found.total() >= 90 else None)
    assert found + Counter(run["value"] for run in runs) == Counter(range(90))
    assert found
    assert runs
    until(lambda: in_hand(client) == 0)
