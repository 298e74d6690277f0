"""What a take hands out, and what it refuses."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import redis
from celery import Celery

from celery_ext.serve.api.deliveries import Taken
from kombu_delayq.store import DelayStore
from tests.integration.serve.deliveries.conftest import send
from tests.support.serve.http_consumers import HttpConsumer, numbers_of
from tests.support.serve.running import Served
from tests.support.servers.acl import users

__all__ = ["users"]

TAKE = "/v1/queues/orders:take"


def test_a_task_has_everything_to_run_it(app: Celery, consumer: HttpConsumer) -> None:
    """Name, id, arguments, priority, expiry and own headers are there, as JSON of the documented shape."""
    expires = datetime.now(UTC) + timedelta(hours=1)
    app.send_task(
        "orders.pack",
        (1, "ü 😀", None),
        {"deep": [{"a": 1.5}]},
        queue="orders",
        task_id="id",
        priority=6,
        expires=expires,
        headers={"traceparent": "00-1"},
    )
    taken = consumer.take()
    msgspec.convert(taken, Taken)
    [message] = taken["messages"]
    assert datetime.fromisoformat(message.pop("expires")) == expires
    headers = message.pop("headers")
    assert headers["traceparent"] == "00-1"
    assert headers["root_id"] == "id"
    assert message == {
        "tag": "1",
        "task": "orders.pack",
        "id": "id",
        "args": [1, "ü 😀", None],
        "kwargs": {"deep": [{"a": 1.5}]},
        "embed": {},
        "redelivered": False,
        "delivery_count": 0,
        "retries": 0,
        "priority": 6,
        "expired": False,
        "reply_to": message["reply_to"],
        "content_type": "application/json",
    }


def test_a_message_before_its_time_is_not_handed_out(
    make_proj: Any, consumer: HttpConsumer, store: DelayStore, client: redis.Redis
) -> None:
    """What a stock publisher has put into a queue too early waits in the store; those behind it are handed out."""
    stock = make_proj(broker_transport="")
    for number in range(3):
        stock.app.send_task("orders.pack", (number,), queue="orders", countdown=3600)
    assert consumer.take(max=2) == {"lease": None, "messages": []}
    assert store.queues.size("orders") == 3
    stock.app.send_task("orders.pack", (3,), queue="orders", countdown=3600)
    stock.app.send_task("orders.pack", (4,), queue="orders")
    taken = consumer.take(max=10)
    assert numbers_of(taken) == [4]
    consumer.ack(taken)
    assert store.queues.size("orders") == 4
    assert not client.exists("unacked", "unacked_index", "{delayq}:consumers")


def test_what_is_no_message_is_dropped(
    app: Celery, served: Served, consumer: HttpConsumer, client: redis.Redis
) -> None:
    """As a worker does, with an error in the log; the messages behind it are handed out."""
    client.lpush("orders", "no message", json.dumps({"body": ""}))
    send(app, 1)
    taken = consumer.take(max=10)
    assert numbers_of(taken) == [1]
    consumer.ack(taken)
    assert not client.exists("unacked", "{delayq}:consumers", "orders")
    assert served.text.count("queue 'orders' had something that is no message, and that is dropped") == 2


@pytest.mark.parametrize(
    ("query", "about"),
    [
        *[("max=0", "$.max"), ("max=101", "$.max"), ("max=x", "$.max"), ("most=1", "most")],
        *[("max=1&max=2", "$.max"), ("lease=1s&lease=2s", "$.lease")],
    ],
)
def test_a_wrong_parameter_is_named(query: str, about: str, consumer: HttpConsumer) -> None:
    """The request is invalid, and the problem says which parameter is wrong."""
    answer = consumer.client.post(f"{TAKE}?{query}")
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:delayq:problem:invalid-request")
    assert about in answer.json()["errors"][0]["path"] + answer.json()["detail"]


@pytest.mark.parametrize(
    "query", ["lease=0.5s", "lease=2h", "lease=", "wait=61", "wait=-1s", "wait=soon", "wait=nan", "lease=%C2%B2"]
)
def test_a_duration_that_is_none_is_a_bad_request(query: str, consumer: HttpConsumer) -> None:
    """The problem names the parameter, and what may stand there."""
    answer = consumer.client.post(f"{TAKE}?{query}")
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:delayq:problem:bad-request")
    assert answer.json()["detail"].startswith(query.partition("=")[0])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *((body, 400) for body in (b"", b"{", b"\xff", b'{"tags": ["99"]}')),
        *((body, 422) for body in (b"[]", b"{}", b'{"tags": []}', b'{"tags": ["0"]}', b'{"tags": ["x"]}')),
        *((body, 422) for body in (b'{"tags": [1]}', b'{"tags": ["1"], "tag": "1"}', b'{"tags": ["1000"]}')),
        (b'{"tags": ["-1"]}', 422),
    ],
)
def test_a_wrong_body_is_refused(body: bytes, status: int, consumer: HttpConsumer) -> None:
    """What is no JSON, or names a tag of no lease, is a bad request, and other JSON invalid, whatever the lease is."""
    for verb in ("ack", "release"):
        assert settle(consumer, verb, body).status_code == status


@pytest.mark.parametrize("delay", [b"1e999", b"0", b"-1", b'"1"'], ids=str)
def test_a_wrong_delay_of_a_release_is_invalid(delay: bytes, consumer: HttpConsumer) -> None:
    """A delay is a number of more than 0 s that a float can hold."""
    assert settle(consumer, "release", b'{"tags": ["1"], "delay": %b}' % delay).status_code == 422


def settle(consumer: HttpConsumer, verb: str, body: bytes) -> Any:
    """Sends a body about a lease that is none."""
    path, as_json = f"/v1/leases/10-{'0' * 32}-b3JkZXJz:{verb}", {"Content-Type": "application/json"}
    return consumer.client.post(path, content=body, headers=as_json)


#: Well-formed ids, of the queues ``orders`` and ``a}``.
WELL_FORMED = (f"10-{'0' * 32}-b3JkZXJz", f"10-{'0' * 32}-YX0")


@pytest.mark.parametrize("lease", ["x", "10-0", f"0-{'0' * 32}", *WELL_FORMED, "a%2Fb", "%00", "10-" + "g" * 32])
def test_a_lease_that_never_was_has_ended(lease: str, consumer: HttpConsumer) -> None:
    """Nobody learns which leases there are."""
    for verb, body in (("ack", {"tags": ["1"]}), ("release", {"tags": ["1"]}), ("extend", {"seconds": 5})):
        assert consumer.refused(f"/v1/leases/{lease}:{verb}", json=body) == (410, "lease-ended")


def test_only_who_may_consume_does(app: Celery, served: Served, consumer: HttpConsumer, client: redis.Redis) -> None:
    """A token needs the action and the queue, and may not be limited to task names, which a queue does not know."""
    send(app, 1)
    for holder in ("reader", "narrow", "named"):
        assert HttpConsumer(served, holder).refused(TAKE) == (403, "not-allowed")
    assert HttpConsumer(served, "nobody").refused(TAKE)[0] == 401
    lease = f"/v1/leases/10-{'0' * 32}"
    assert HttpConsumer(served, "reader").refused(f"{lease}:ack", json={"tags": ["1"]})[0] == 403
    assert client.llen("orders") == 1


def test_a_queue_that_nobody_knows_is_no_empty_one(served: Served, consumer: HttpConsumer) -> None:
    """A misspelled name is not found, and a queue of broadcasts has no messages; one that a token names exists."""
    assert consumer.refused("/v1/queues/odrers:take?wait=20s") == (404, "no-such-queue")
    assert consumer.refused("/v1/queues/celeryev.1:take") == (400, "broadcast-queue")
    assert consumer.refused("/v1/queues/w@h.celery.pidbox:take") == (400, "broadcast-queue")
    assert HttpConsumer(served, "exact").take("new") == {"lease": None, "messages": []}


def test_no_key_of_ours_is_a_queue(served: Served, consumer: HttpConsumer, client: redis.Redis) -> None:
    """What waits in a list of Redisson's layout, or of ours, is not handed out as a queue of that name."""
    client.lpush("redisson_delay_queue:{orders}", "entry")
    assert consumer.refused("/v1/queues/redisson_delay_queue%3A%7Borders%7D:take") == (400, "bad-request")
    assert client.lrange("redisson_delay_queue:{orders}", 0, -1) == ["entry"]


def test_a_queue_that_was_known_just_now_still_is(app: Celery, consumer: HttpConsumer, client: redis.Redis) -> None:
    """Who has emptied a queue that leaves nothing in Redis may wait for its next message."""
    send(app, 1, queue="brief")
    consumer.ack(consumer.take("brief"))
    client.flushdb()
    assert consumer.take("brief") == {"lease": None, "messages": []}


def test_another_key_in_the_place_of_a_queue_is_named(client: redis.Redis, consumer: HttpConsumer) -> None:
    """It is an error of the broker, and nothing is in hand afterwards."""
    client.set("orders", "x")
    status, _ = consumer.refused(TAKE)
    assert status == 409
    assert not client.exists("unacked")
