"""What becomes of messages with a lease: acknowledged, released, extended, or given back when it ends."""

from datetime import UTC, datetime

import pytest
import redis
from celery import Celery

from celery_ext import run_now
from kombu_delayq.store import DelayStore
from tests.integration.serve.deliveries.conftest import send
from tests.support.conditions import stays, until
from tests.support.serve.http_consumers import HttpConsumer, numbers_of, tags_of
from tests.support.serve.running import Served
from tests.support.workers.transfers import Transfer

GONE = (410, "lease-ended")


def nothing_held(client: redis.Redis) -> bool:
    """Whether no message is in hand, and no lease is left."""
    return not client.exists("unacked", "unacked_index", "{delayq}:consumers", "{delayq}:consumers:queues")


@pytest.mark.journey
def test_what_is_acknowledged_is_done(app: Celery, consumer: HttpConsumer, client: redis.Redis) -> None:
    """Messages come in the order of the queue, and leave nothing behind once all are acknowledged."""
    send(app, 1, 2, 3)
    taken = consumer.take(max=2, lease="30s")
    assert numbers_of(taken) == [1, 2]
    assert 0 < datetime.fromisoformat(taken["lease"]["ends"]).timestamp() - datetime.now(UTC).timestamp() <= 30
    assert consumer.ack(taken, "1") == {"acknowledged": ["1"], "missing": []}
    assert client.exists("{delayq}:consumers")
    assert consumer.ack(taken, "2") == {"acknowledged": ["2"], "missing": []}
    assert nothing_held(client)
    assert client.llen("orders") == 1


def test_a_take_counts_how_long_messages_waited(app: Celery, consumer: HttpConsumer, client: redis.Redis) -> None:
    """What the server hands out is in the histogram of waiting times, as what workers take is."""
    send(app, 1, timestamp=int(datetime.now(UTC).timestamp()) - 100)
    send(app, 2)
    consumer.take(max=2)
    counts = DelayStore(client).figures.counts(["orders"])["orders"]
    assert (counts.waits.count, counts.waits_unknown, 100 <= counts.waits.sum_s < 160) == (2, 0, True)


def test_a_second_ack_says_that_nothing_was_held(app: Celery, consumer: HttpConsumer) -> None:
    """While the lease holds other messages it names those that it holds no more; afterwards the lease is gone."""
    send(app, 1, 2)
    taken = consumer.take(max=2)
    consumer.ack(taken, "1")
    assert consumer.ack(taken, "1", "1") == {"acknowledged": [], "missing": ["1"]}
    assert consumer.ack(taken, "1", "2") == {"acknowledged": ["2"], "missing": ["1"]}
    path = f"/v1/leases/{taken['lease']['id']}"
    for verb, body in (("ack", {"tags": ["1"]}), ("release", {"tags": ["1"]}), ("extend", {"seconds": 30})):
        assert consumer.refused(f"{path}:{verb}", json=body) == GONE


def test_nobody_else_can_use_a_lease(app: Celery, served: Served, consumer: HttpConsumer, client: redis.Redis) -> None:
    """For another token the lease does not exist, and its messages stay in hand."""
    send(app, 1)
    taken = consumer.take()
    other, path = HttpConsumer(served, "other"), f"/v1/leases/{taken['lease']['id']}"
    before = client.hgetall("unacked"), client.zrange("{delayq}:consumers", 0, -1, withscores=True)
    for verb, body in (("ack", {"tags": ["1"]}), ("release", {"tags": ["1"]}), ("extend", {"seconds": 600})):
        assert other.refused(f"{path}:{verb}", json=body) == GONE
    assert (client.hgetall("unacked"), client.zrange("{delayq}:consumers", 0, -1, withscores=True)) == before
    assert consumer.ack(taken)["acknowledged"] == ["1"]


def test_what_is_released_is_next(app: Celery, consumer: HttpConsumer, client: redis.Redis) -> None:
    """Released messages are the next of their queue, in their old order, marked as redelivered and not as killers."""
    send(app, 1, 2, 3, 4)
    taken = consumer.take(max=3)
    assert consumer.of(taken, "release", tags=["3", "1"]) == {"released": ["3", "1"], "missing": []}
    again = consumer.take(max=9)
    assert numbers_of(again) == [1, 3, 4]
    assert [message["redelivered"] for message in again["messages"]] == [True, True, False]
    assert [message["delivery_count"] for message in again["messages"]] == [0, 0, 0]
    assert consumer.of(again, "release", tags=tags_of(again))["missing"] == []
    assert consumer.ack(taken, "2")["acknowledged"] == ["2"]
    assert nothing_held(client)


@pytest.mark.parametrize("countdown", [None, 0.05])
def test_what_is_released_with_a_delay_comes_later(
    app: Celery, consumer: HttpConsumer, store: DelayStore, transfer: Transfer, countdown: float | None
) -> None:
    """It waits in the store as a delayed task does, also one that had an eta, and is delivered when it is due."""
    transfer(poll_interval=0.05)
    send(app, 1, countdown=countdown, task_id="id")
    taken = consumer.take(wait="60s")
    assert consumer.of(taken, "release", tags=["1"], delay=3600) == {"released": ["1"], "missing": []}
    assert [*store.lookup.get(["orders"], ["id"])] == ["id"]
    assert consumer.take() == {"lease": None, "messages": []}
    assert run_now(app, "id") == "transferred"
    taken = consumer.take()
    before = datetime.now(UTC)
    assert consumer.of(taken, "release", tags=["1"], delay=1) == {"released": ["1"], "missing": []}
    again = consumer.take(wait="60s")
    assert (datetime.now(UTC) - before).total_seconds() > 0.9
    assert [(message["id"], message["redelivered"]) for message in again["messages"]] == [("id", True)]


def test_an_extended_lease_lasts_longer(
    app: Celery, consumer: HttpConsumer, client: redis.Redis, transfer: Transfer
) -> None:
    """Messages stay in hand beyond the end that the lease had, and the answer says what it holds and when it ends."""
    send(app, 1, 2)
    taken = consumer.take(max=2, lease="1s")
    consumer.ack(taken, "1")
    extended = consumer.of(taken, "extend", seconds=30)
    assert extended["held"] == ["2"]
    assert extended["lease"]["id"] == taken["lease"]["id"]
    assert extended["lease"]["ends"] > taken["lease"]["ends"]
    transfer(
        poll_interval=0.05, consumer_ttl=1
    )  # until now nobody would have given anything back, however slow this is
    stays(lambda: client.hlen("unacked") == 1, 2.5)
    assert consumer.ack(taken, "2")["acknowledged"] == ["2"]


def test_what_is_not_acknowledged_comes_again_once(
    app: Celery, consumer: HttpConsumer, client: redis.Redis, transfer: Transfer
) -> None:
    """When a lease ends, its messages are next in their queue, redelivered and counted, and the lease is gone."""
    transfer(poll_interval=0.05, consumer_ttl=1)
    send(app, 1, 2, 3)
    taken = consumer.take(max=2, lease="1s")
    until(lambda: client.llen("orders") == 3)
    again = consumer.take(max=9)
    assert numbers_of(again) == [1, 2, 3]
    assert [message["delivery_count"] for message in again["messages"]] == [1, 1, 0]
    assert [message["redelivered"] for message in again["messages"]] == [True, True, False]
    for verb, body in (("ack", {"tags": ["1"]}), ("release", {"tags": ["1"]}), ("extend", {"seconds": 30})):
        assert consumer.refused(f"/v1/leases/{taken['lease']['id']}:{verb}", json=body) == GONE
    consumer.ack(again)
    assert nothing_held(client)
    assert client.llen("orders") == 0


def test_a_late_ack_counts_while_nobody_has_given_the_message_back(
    app: Celery, consumer: HttpConsumer, client: redis.Redis
) -> None:
    """Without a transfer worker nobody gives anything back, so an ack or an extension after the end still holds."""
    send(app, 1, 2)
    taken = consumer.take(max=2, lease="1s")
    [(name, _)] = client.zrange("{delayq}:consumers", 0, -1, withscores=True)
    client.zadd("{delayq}:consumers", {name: 1000})
    assert consumer.ack(taken, "1")["acknowledged"] == ["1"]
    assert consumer.of(taken, "extend", seconds=30)["held"] == ["2"]
