"""Messages in the hands of a consumer whose connection is lost, or whose Redis cannot note them."""

from collections.abc import Sequence
from contextlib import suppress
from signal import SIGKILL
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.asynchronous.hub import Hub

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight
from tests.support.conditions import until
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import in_hand

#: Short, and longer than this process stands still on a busy machine: its transfer worker would end a lease, too.
LEASE_S = 3.0


def _consuming(server: PrivateRedis, got: list[Any]) -> tuple[Connection, Any]:
    """Returns a connection and its consumer, which notes messages and acknowledges none."""
    options = {"consumer_ttl": LEASE_S, "poll_interval": 0.1}
    connection = Connection(server.url, transport=TRANSPORT, transport_options=options)
    # As for remote control: kombu deletes the queue when the connection is closed, which fails without Redis.
    queues = [Queue("orders"), Queue("commands", Exchange("commands", type="fanout"), auto_delete=True)]
    consumer = connection.Consumer(queues, callbacks=[lambda body, message: got.append(message)])
    consumer.consume()
    return connection, consumer


def _drained(connection: Connection) -> None:
    with suppress(TimeoutError):
        connection.drain_events(timeout=0.2)


def _held(server: PrivateRedis, bodies: Sequence[str], key: str = "") -> tuple[Connection, list[Any]]:
    """Returns a connection whose consumer has messages in hand, with a key of limits if one is given, and these."""
    got: list[Any] = []
    connection, _ = _consuming(server, got)
    with Connection(server.url, transport=TRANSPORT) as sending:
        for body in bodies:
            sending.SimpleQueue("orders").put(body, headers={LIMIT_HEADER: key} if key else {})
    until(lambda: _drained(connection) or len(got) == len(bodies), what="the messages are in hand")
    return connection, got


def _lose(server: PrivateRedis, lost: Connection) -> None:
    """Closes a connection as a Celery worker does, while Redis is away."""
    server.stop(SIGKILL)
    with suppress(redis.ConnectionError):
        lost.collect()
    server.start()


def _come_again(server: PrivateRedis, bodies: Sequence[str]) -> tuple[Connection, list[Any]]:
    """Waits until messages have come to the next connection. Returns this and the messages."""
    got: list[Any] = []
    connection, _ = _consuming(server, got)
    until(lambda: _drained(connection) or len(got) == len(bodies), what="the messages come again")
    assert [message.payload for message in got] == list(bodies)
    return connection, got


def test_an_event_loop_calls_nothing_of_a_lost_connection(own_server: PrivateRedis) -> None:
    """Whatever number of connections a worker has lost, each turn of its loop calls only what the one of now needs."""
    hub, got, calls = Hub(), list[Any](), list[int]()
    for _ in range(3):
        connection, _ = _consuming(own_server, got)
        connection.register_with_event_loop(hub)
        _turn(hub)
        calls.append(len(hub.on_tick))
        own_server.client().client_kill_filter(_type="normal", skipme=True)
        with pytest.raises((redis.ConnectionError, OSError)):
            until(lambda: _turn(hub), what="the loss is seen")
        connection.collect()
        hub.reset()
    assert (calls, len(hub.on_tick)) == ([1, 1, 1], 0)


def _turn(hub: Hub) -> None:
    for tick in list(hub.on_tick):
        tick()
    for fd, _ in hub.poller.poll(0.02) or ():
        if fd in hub.readers:
            callback, args = hub.readers[fd]
            callback(*args)


def test_a_connection_closed_while_redis_is_away_holds_nothing(durable_server: PrivateRedis) -> None:
    """A process closes a connection that Redis has lost: what it held comes back to the process's next connection."""
    lost, _ = _held(durable_server, ["one"])
    _lose(durable_server, lost)
    found, [message] = _come_again(durable_server, ["one"])
    message.ack()
    found.close()


def test_a_task_that_outlives_its_connection_gives_its_place_back(durable_server: PrivateRedis) -> None:
    """A task ends after its connection has been closed: its consumer does not keep the place of its key for good."""
    DelayStore(durable_server.client()).part(LimitStore).declare({"account": Limit(running=1)}, ["orders"])
    lost, [begun] = _held(durable_server, ["one"], "account:a")
    begun.begin()
    lost.collect()
    begun.end()
    found, [message] = _come_again(durable_server, ["one"])
    message.ack()
    found.close()


def test_what_has_not_begun_does_not_wait_for_a_task_that_has(durable_server: PrivateRedis) -> None:
    """While a task of a key outlives its connection, the other messages that came over this go to another consumer."""
    DelayStore(durable_server.client()).part(LimitStore).declare({"account": Limit(running=5)}, ["orders"])
    lost, [begun, *_] = _held(durable_server, ["one", "two", "three"], "account:a")
    begun.begin()
    _lose(durable_server, lost)
    found, _ = _come_again(durable_server, ["two", "three"])
    assert durable_server.client().hlen("{delayq}:places") == 3
    begun.end()
    found.close()


def test_a_consumer_without_a_loop_goes_on_while_redis_is_full(own_server: PrivateRedis) -> None:
    """It takes a message and acknowledges it, and waits for more, though kombu cannot look for what others held."""
    client = own_server.client()
    received: list[str] = []

    def receive(body: str, message: Any) -> None:
        received.append(body)
        message.ack()

    with Connection(own_server.url, transport=TRANSPORT, transport_options={"transfer": False}) as connection:
        queue = Queue("q")(connection.default_channel)
        queue.declare()
        Producer(connection.default_channel).publish("hello", routing_key="q")
        with Consumer(connection.default_channel, [queue], callbacks=[receive]):
            client.config_set("maxmemory", 1)
            connection.drain_events(timeout=20)
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.5)
            assert (received, client.llen("q"), in_hand(client)) == (["hello"], 0, 0)
            client.config_set("maxmemory", 0)
            Producer(connection.default_channel).publish("again", routing_key="q")
            connection.drain_events(timeout=20)
    assert received == ["hello", "again"]


def test_what_has_landed_before_a_close_that_redis_refuses_comes_again(own_server: PrivateRedis) -> None:
    """A message lands, Redis refuses to put it back when the connection closes, and it goes to another consumer."""
    client = own_server.client()
    lost, _ = _consuming(own_server, [])
    with Connection(own_server.url, transport=TRANSPORT) as connection:
        connection.SimpleQueue("ready").put("one")

    def has_landed() -> bool:
        _drained(lost)
        client.lmove("ready", "orders")
        return bool(client.keys("*landing*")) or not client.lmove("orders", "ready")

    until(has_landed, what="the consumer waits, and the message comes to it")
    client.config_set("min-replicas-to-write", 1)  # as at a primary that the Sentinels replace
    with suppress(redis.ResponseError):
        lost.collect()
    client.config_set("min-replicas-to-write", 0)
    got: list[Any] = []
    found, _ = _consuming(own_server, got)
    until(lambda: _drained(found) or got, what="the message comes again")
    assert got[0].payload == "one"
    found.close()


def test_what_a_failover_brings_back_to_an_in_flight_list_goes_to_its_queue(own_server: PrivateRedis) -> None:
    """A consumer that leaves empties its in-flight lists anew, since a failover may have lost that it did so."""
    client = own_server.client()
    leaving, _ = _consuming(own_server, [])
    channel = leaving.default_channel
    client.lpush(channel.store.fetching.in_flight_keys(InFlight("orders", 0, channel.consumer.name))[1], "one")
    channel.consumer.leave(channel.store)
    assert client.lrange("orders", 0, -1) == ["one"]
    assert not channel.store.consumers.all()
    leaving.close()


def test_what_a_failover_brings_back_into_the_hands_of_a_consumer_goes_to_its_queue(own_server: PrivateRedis) -> None:
    """A consumer that leaves does not know of a message whose acknowledgement was lost, so its lease ends by itself."""
    client, got = own_server.client(), list[Any]()
    leaving, _ = _consuming(own_server, got)
    with Connection(own_server.url, transport=TRANSPORT) as connection:
        connection.SimpleQueue("orders").put("one")
    until(lambda: _drained(leaving) or got, what="the message comes")
    lost = {key: client.dump(key) for key in ("unacked", "unacked_index")}
    got[0].ack()
    until(lambda: not client.exists(*lost), what="Redis has the acknowledgement")
    for key, value in lost.items():
        client.restore(key, 0, value)
    leaving.close()
    found, _ = _consuming(own_server, got)
    until(lambda: _drained(found) or len(got) == 2, what="the message comes again")
    assert (got[1].payload, got[1].headers.get("redelivered") or got[1].delivery_info["redelivered"]) == ("one", True)
    found.close()


def test_a_connection_closes_while_redis_is_full(own_server: PrivateRedis) -> None:
    """A worker that connects again deletes a queue of its own first, which a full Redis refuses, and goes on."""
    client = own_server.client()
    leaving, _ = _consuming(own_server, [])
    channel = leaving.default_channel
    client.config_set("maxmemory", 1)
    channel.close()
    client.config_set("maxmemory", 0)
    assert channel.closed
    leaving.close()
